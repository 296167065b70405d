"""What is installed where. Everything is read from the last inventory; no node is asked here."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone

from backendops.models import NodeBackend
from backendops.presenting import fleet
from clustermgr.lib.admin import ReadOnlyAdmin

PER_PAGE = 100


@admin.register(NodeBackend)
class BackendAdmin(ReadOnlyAdmin):
    """One row per backend's name, not per row of the table: see presenting.fleet."""

    verbs = {"request": "backendops.request_operation"}
    fields = ["name"]

    def get_urls(self) -> list[URLPattern]:
        one = self.admin_site.admin_view(self.backend)
        return [path("one/", one, name="backendops_backend"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        search = request.GET.get("q", "").replace("\x00", "").strip()[:255]
        rows = fleet.rows(search=search, now=timezone.now())
        return self._page(request, "console/backends/list.html", "Backends", rows=rows, q=search)

    def backend(self, request: HttpRequest) -> HttpResponse:
        """Where one backend is."""
        name = request.GET.get("name", "").replace("\x00", "")[:255]
        now = timezone.now()
        found = fleet.on_nodes(name, now=now)
        shown = _page_of(found, request)
        row = next((one for one in fleet.rows(search=name, now=now) if one.name == name), None)
        return self._page(
            request, "console/backends/one.html", name, found=shown, name=name, row=row
        )

    def _page(
        self, request: HttpRequest, template: str, title: str, **context: Any
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        shared = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.model._meta,
            "may_request": self.has_request_permission(request),
        }
        return TemplateResponse(request, template, {**shared, **context})


def _page_of(found: list[Any], request: HttpRequest) -> dict[str, Any]:
    asked = request.GET.get("p", "1")
    number = max(int(asked), 1) if asked.isdecimal() and len(asked) < 6 else 1
    start = (number - 1) * PER_PAGE
    return {
        "rows": found[start : start + PER_PAGE],
        "total": len(found),
        "earlier": number - 1 if number > 1 else None,
        "later": number + 1 if len(found) > start + PER_PAGE else None,
    }
