"""The node list and the node's page."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.decorators import display

from clustermgr.lib.admin import ConsoleChangeList, EmptyHint
from clustermgr.lib.errors import InvalidInput
from nodes.admin import bulk, edits, filters, live, logs, nodepage
from nodes.admin.verbs import NodeVerbs
from nodes.models import BackendNode
from nodes.presenting import displays, pending
from nodes.querysets import BackendNodeQuerySet
from nodes.selectors import Selector
from nodes.services import overview


class NodeChangeList(ConsoleChangeList):
    """Reads what its rows need for all of them at once."""

    result_list: Any
    live_ids = ""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        for look in displays.looks(self.result_list, now=timezone.now()):
            look.node.look = look  # type: ignore[attr-defined]
        self.live_ids = ",".join(str(node.pk) for node in self.result_list)


@admin.register(BackendNode)
class NodeAdmin(NodeVerbs):
    """Rows carry their `look`; see NodeChangeList."""

    list_display = [
        *("name_cell", "status_cell", "heartbeat_cell", "kind_cell"),
        *("vram_cell", "ram_cell", "disk_cell", "load_cell", "labels_cell"),
    ]
    list_display_links = ["name_cell"]
    list_filter = [
        filters.StatusFilter,
        filters.TypeFilter,
        filters.GpuFilter,
        filters.KeptFreeFilter,
    ]
    list_filter_submit = True
    list_fullwidth = True
    list_before_template = "console/nodes/before_list.html"
    empty_hint = EmptyHint(
        title="No nodes yet",
        text="A node is a machine that runs local-ai worker and joins with a token.",
        url_name="admin:add_worker",
        link="Add a worker",
        needs="nodes.add_jointoken",
    )
    search_fields = ["name", "address"]
    search_help_text = "Name, address, or labels: gpu.vram=24GB"
    ordering = ["name"]
    actions = bulk.ACTIONS
    fields = ["name"]

    def get_queryset(self, request: HttpRequest) -> BackendNodeQuerySet:
        return BackendNode.objects.with_load().select_related("join_token")

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[NodeChangeList]:
        return NodeChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet, search_term: str
    ) -> tuple[QuerySet, bool]:
        """A word is part of a name; anything with a sign of the selector language is a selector."""
        if not looks_like_selector(search_term):
            return super().get_search_results(request, queryset, search_term)  # type: ignore[no-any-return]
        try:
            return queryset.matching(Selector.parse(search_term)), False  # type: ignore[attr-defined]
        except InvalidInput as refusal:
            self.message_user(request, str(refusal), messages.WARNING)
            return queryset.none(), False

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("live/", guard(live.fragment), name="nodes_live"),
            path("bulk/<slug:name>/", guard(require_POST(self.bulk)), name="nodes_bulk"),
            path(
                "<uuid:node_id>/edit/<slug:name>/",
                guard(require_POST(self.edit)),
                name="nodes_edit",
            ),
            path("<uuid:node_id>/logs/", guard(logs.fragment), name="nodes_logs"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {
            "title": "Nodes",
            "pending": pending.panel(request),
            "cluster": overview.cluster(),
            "holding": overview.holding(),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        context.update(nodepage.context(request, obj))
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    def bulk(self, request: HttpRequest, name: str) -> HttpResponse:
        return bulk.confirm(self, request, name)

    def edit(self, request: HttpRequest, node_id: str, name: str) -> HttpResponse:
        return edits.edit(self, request, str(node_id), name)

    @display(description="Name", ordering="name")
    def name_cell(self, node: Any) -> SafeString:
        return format_html(
            '<span class="cm-name">{}</span><span class="cm-sub">{}</span>', node.name, node.address
        )

    @display(description="Status")
    def status_cell(self, node: Any) -> SafeString:
        return displays.cell("status", node.look)

    @display(description="Heartbeat", ordering="-last_heartbeat")
    def heartbeat_cell(self, node: Any) -> SafeString:
        return displays.cell("heartbeat", node.look)

    @display(description="Type / GPU", ordering="gpu_vendor")
    def kind_cell(self, node: Any) -> SafeString:
        gpu = node.gpu_vendor or "no GPU"
        return format_html('{}<span class="cm-sub">{}</span>', node.node_type, gpu)

    @display(description="VRAM", ordering="total_vram")
    def vram_cell(self, node: Any) -> SafeString:
        return displays.cell("vram", node.look)

    @display(description="RAM", ordering="total_ram")
    def ram_cell(self, node: Any) -> SafeString:
        return displays.cell("ram", node.look)

    @display(description="Disk", ordering="total_disk")
    def disk_cell(self, node: Any) -> SafeString:
        return displays.cell("disk", node.look)

    @display(description="Load", ordering="in_flight_count")
    def load_cell(self, node: Any) -> SafeString:
        return displays.cell("load", node.look)

    @display(description="Labels")
    def labels_cell(self, node: Any) -> SafeString:
        return displays.labels_cell(node.look)


def looks_like_selector(term: str) -> bool:
    return any(sign in term for sign in "=<>!(),") or " in " in term or " notin " in term
