"""The admin site itself."""

from typing import Any

from django.http import HttpRequest
from django.urls import path
from django.utils import timezone
from unfold.sites import UnfoldAdminSite

from backendops.presenting import strip
from clustermgr import dashboard


class ClusterAdminSite(UnfoldAdminSite):
    """The operator's console."""

    def get_urls(self) -> list[Any]:
        return [
            path("parts/", self.admin_view(dashboard.parts_fragment), name="parts"),
            path("fleet/", self.admin_view(dashboard.fleet_fragment), name="fleet"),
            path("upgrades/", self.admin_view(dashboard.upgrades_fragment), name="upgrades"),
            *super().get_urls(),
        ]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """What every page shows: the theme's frame, and what is going on."""
        return {**super().each_context(request), "strip": strip.of(request, now=timezone.now())}
