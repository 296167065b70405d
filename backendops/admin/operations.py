"""The list of operations and the page of one."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from backendops import exporting
from backendops.admin import filters, live, operationpage
from backendops.admin.install import InstallView
from backendops.admin.operationverbs import OperationVerbs
from backendops.models import Operation
from backendops.presenting import lines
from clustermgr.lib.admin import ConsoleChangeList, EmptyHint


class OperationChangeList(ConsoleChangeList):
    """Reads what its rows need for all of them at once."""

    result_list: Any
    live_ids = ""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        for line in lines.lines(self.result_list, now=timezone.now()):
            line.operation.line = line  # type: ignore[attr-defined]
        self.live_ids = ",".join(str(one.pk) for one in self.result_list)


@admin.register(Operation)
class OperationAdmin(OperationVerbs):
    """Rows carry their `line`; see OperationChangeList."""

    list_display = [
        *("state_cell", "what_cell", "target_cell", "nodes_cell"),
        *("progress_cell", "by_cell", "age_cell"),
    ]
    list_display_links = ["what_cell"]
    list_filter = [
        filters.StateFilter,
        ("verb", ChoicesDropdownFilter),
        filters.BackendFilter,
        filters.NodeFilter,
        filters.ActorFilter,
        ("requested_at", filters.DayFilter),
    ]
    list_filter_submit = True
    list_fullwidth = True
    list_before_template = "console/operations/before_list.html"
    search_fields = ["backend", "target", "requested_by", "reason"]
    search_help_text = "Backend, target, who or why"
    paginator = InfinitePaginator  # counting a history of millions is not worth a page number
    ordering = ["-requested_at", "-id"]
    empty_hint = EmptyHint(
        title="Nobody has ordered anything yet",
        text="An operation installs, upgrades, deletes or stops a backend on some nodes.",
        url_name="admin:backendops_operation_install",
        link="Install a backend",
        needs="backendops.request_operation",
    )
    fields = ["backend"]

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[OperationChangeList]:
        return OperationChangeList

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        install = InstallView.as_view(model_admin=self)
        return [
            path("live/", guard(live.fragment), name="operations_live"),
            path("install/", guard(install), name="backendops_operation_install"),
            path("export/<slug:kind>/", guard(self.export), name="backendops_operation_export"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {
            "title": "Operations",
            "chosen_state": request.GET.get("state", ""),
            "may_request": self.has_request_permission(request),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    def export(self, request: HttpRequest, kind: str) -> HttpResponseBase:
        """What the list shows under the same filters, all pages of it, as a file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if kind not in exporting.TYPES:
            raise Http404
        try:
            rows = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(reverse("admin:backendops_operation_changelist"))
        return exporting.response(request, rows, kind=kind)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        context.update(operationpage.context(request, obj))
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    @display(description="State")
    def state_cell(self, operation: Any) -> SafeString:
        return lines.cell("state", operation.line)

    @display(description="What")
    def what_cell(self, operation: Any) -> SafeString:
        return format_html(
            '<span class="cm-name">{} {}</span>', operation.verb.capitalize(), operation.backend
        )

    @display(description="Where")
    def target_cell(self, operation: Any) -> SafeString:
        return format_html('<span class="cm-wrap">{}</span>', operation.target)

    @display(description="Nodes")
    def nodes_cell(self, operation: Any) -> SafeString:
        return lines.cell("nodes", operation.line)

    @display(description="Progress")
    def progress_cell(self, operation: Any) -> SafeString:
        return lines.cell("progress", operation.line)

    @display(description="Requested by")
    def by_cell(self, operation: Any) -> SafeString:
        return format_html(
            '{}<span class="cm-sub cm-wrap">{}</span>', operation.requested_by, operation.reason
        )

    @display(description="When")
    def age_cell(self, operation: Any) -> SafeString:
        return lines.cell("age", operation.line)
