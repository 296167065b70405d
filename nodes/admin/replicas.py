"""What runs where; read only, the scheduler decides."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter
from unfold.decorators import display

from clustermgr.lib.admin import EmptyHint, ReadOnlyAdmin
from nodes.admin import logs
from nodes.models import NodeModel
from nodes.presenting.displays import ago
from nodes.states import ReplicaState


@admin.register(NodeModel)
class ReplicaAdmin(ReadOnlyAdmin):
    list_display = [
        *("model_name", "replica_index", "state_chip", "on_node"),
        *("in_flight", "used", "backend_type", "address", "doubt", "log"),
    ]
    list_display_links = None
    list_filter = [("state", ChoicesDropdownFilter)]
    list_filter_submit = True
    list_select_related = ["node"]
    search_fields = ["model_name", "node__name", "address"]
    search_help_text = "Model, node or address"
    ordering = ["model_name", "node__name", "replica_index"]
    empty_hint = EmptyHint(
        title="No model runs anywhere yet",
        text="Replicas appear here when they are placed on a node.",
        url_name="admin:nodes_backendnode_changelist",
        link="See the nodes",
        needs="nodes.view_backendnode",
    )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"title": "Replicas", **(extra_context or {})})  # type: ignore[no-any-return]

    @display(
        description="State",
        ordering="state",
        label={
            ReplicaState.LOADED.value: "success",
            ReplicaState.LOADING.value: "info",
            ReplicaState.STAGING.value: "info",
            ReplicaState.UNLOADING.value: "warning",
        },
    )
    def state_chip(self, replica: NodeModel) -> str:
        return replica.state

    @display(description="Node", ordering="node__name")
    def on_node(self, replica: NodeModel) -> SafeString:
        page = reverse("admin:nodes_backendnode_change", args=[replica.node_id])
        return format_html('<a class="cm-link" href="{}?tab=replicas">{}</a>', page, replica.node)

    @display(description="Last used", ordering="last_used")
    def used(self, replica: NodeModel) -> str:
        return ago(replica.last_used, now=timezone.now()) if replica.last_used else "never"

    def get_list_display(self, request: HttpRequest) -> list[str]:
        if request.user.has_perm(logs.PERMISSION):
            return self.list_display
        return [name for name in self.list_display if name != "log"]

    @display(description="Log")
    def log(self, replica: NodeModel) -> SafeString:
        page = logs.page_of(replica.node_id, replica.process_key)
        return format_html('<a class="cm-link" href="{}">Logs</a>', page)

    @display(description="In doubt")
    def doubt(self, replica: NodeModel) -> str:
        if replica.suspect_since is None:
            return ""
        return f"since {ago(replica.suspect_since, now=timezone.now())}: asking its worker"
