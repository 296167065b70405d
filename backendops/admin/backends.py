"""What is installed where. Everything is read from the last inventory; no node is asked here."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from backendops.models import NodeBackend
from backendops.presenting import fleet
from backendops.services import nudging, upgrades
from clustermgr.lib.admin import ReadOnlyAdmin
from nodes.admin.nodepage import page_number

PER_PAGE = 50
LIST = "Backends"


@admin.register(NodeBackend)
class BackendAdmin(ReadOnlyAdmin):
    """One row per backend's name, not per row of the table: see presenting.fleet."""

    verbs = {"request": "backendops.request_operation"}
    fields = ["name"]

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("one/", guard(self.backend), name="backendops_backend"),
            path("upgrade-all/", guard(self.upgrade_all), name="backendops_upgrade_all"),
            path(
                "refresh/<uuid:node_id>/",
                guard(require_POST(self.refresh)),
                name="backendops_refresh",
            ),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        search = request.GET.get("q", "").replace("\x00", "").strip()[:255]
        rows = fleet.rows(search=search, now=timezone.now())
        offered = fleet.offered(search=search)
        return self._page(
            request,
            "console/backends/list.html",
            LIST,
            rows=rows,
            q=search,
            newer=sum(bool(row.upgrade) for row in rows),
            offered=offered[: fleet.MOST_OFFERED],
            more_offered=len(offered) > fleet.MOST_OFFERED,
        )

    def backend(self, request: HttpRequest) -> HttpResponse:
        """Where one backend is."""
        name, now = request.GET.get("name", "").replace("\x00", "")[:255], timezone.now()
        row, number = fleet.row(name, now=now), page_number(request)
        start, total = (number - 1) * PER_PAGE, row.installed if row else 0
        drifting = frozenset(row.drifting) if row else frozenset()
        return self._page(
            request,
            "console/backends/one.html",
            name,
            name=name,
            row=row,
            about=fleet.about(name),
            found=fleet.on_nodes(name, drifting=drifting, start=start, count=PER_PAGE, now=now),
            total=total,
            earlier=number - 1 if number > 1 else None,
            later=number + 1 if total > start + PER_PAGE else None,
        )

    def upgrade_all(self, request: HttpRequest) -> HttpResponse:
        """First who would be asked; then, by POST, one operation for each backend."""
        if not self.has_request_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._upgrade(request)
        return self._page(
            request, "console/backends/upgrade_all.html", "Upgrade all", steps=upgrades.preview()
        )

    def _upgrade(self, request: HttpRequest) -> HttpResponse:
        by, now = request.user.get_username(), timezone.now()
        reason = request.POST.get("reason", "").replace("\x00", "")[:255]
        only = request.POST.getlist("backend")
        begun = upgrades.upgrade_all(by=by, now=now, only=only, reason=reason) if only else []
        for one in begun:
            if one.refusal:
                self.message_user(request, one.refusal, messages.WARNING)
        count = sum(one.operation is not None for one in begun)
        self.message_user(request, f"Upgrades ordered: {count}.", messages.INFO)
        return HttpResponseRedirect(reverse("admin:backendops_operation_changelist"))

    def refresh(self, request: HttpRequest, node_id: UUID) -> HttpResponse:
        """Have one node asked what it has; the page shows it when it has answered."""
        if not self.has_request_permission(request):
            raise PermissionDenied
        nudging.look_at(node_id)
        self.message_user(request, "The node is being asked; reload in a moment.", messages.INFO)
        page = reverse("admin:nodes_backendnode_change", args=[node_id])
        return HttpResponseRedirect(f"{page}?tab=backends")

    def _page(
        self, request: HttpRequest, template: str, title: str, **context: Any
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        shared = {
            **self.admin_site.each_context(request),
            "title": title,
            # With `opts` the theme leaves out the last crumb; the list's is the model's own name
            **({"opts": self.model._meta} if title == LIST else {"model_admin": self}),
            "may_request": self.has_request_permission(request),
        }
        return TemplateResponse(request, template, {**shared, **context})
