"""The admin site itself."""

from typing import Any

from django.urls import path
from unfold.sites import UnfoldAdminSite

from clustermgr import dashboard


class ClusterAdminSite(UnfoldAdminSite):
    """The operator's console."""

    def get_urls(self) -> list[Any]:
        return [
            path("parts/", self.admin_view(dashboard.parts_fragment), name="parts"),
            path("fleet/", self.admin_view(dashboard.fleet_fragment), name="fleet"),
            *super().get_urls(),
        ]
