"""The dead-letter desk: what was given up, by cause; and the verbs of one node's share."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.decorators import display
from unfold.enums import ActionVariant

from backendops.admin import deadletters
from backendops.admin.forms import MustSayWhy, ReasonDialog
from backendops.models import PendingBackendOp
from backendops.presenting import shares
from backendops.services import cancelling, nudging, redriving
from backendops.services.deadletters import CAUSE, causes
from clustermgr.lib.admin import Dialog, EmptyHint, ReadOnlyAdmin, ops_action
from nodes.presenting.displays import ago

Filled = dict[str, Any]


@admin.register(PendingBackendOp)
class OpAdmin(ReadOnlyAdmin):
    """Its list shows dead letters only: everything else is on an operation's page."""

    list_display = ["what_cell", "node_cell", "cause_cell", "attempts", "age_cell", "verbs_cell"]
    list_display_links = None
    list_filter = [deadletters.CauseFilter]
    list_before_template = "console/operations/before_deadletters.html"
    list_select_related = ["node"]
    search_fields = ["backend", "node__name", "last_error"]
    search_help_text = "Backend, node or error"
    ordering = ["-changed_at"]
    empty_hint = EmptyHint(
        title="No dead letters", text="Nothing was given up: every order was carried out or waits."
    )
    fields = ["backend"]
    verbs = {
        "request": "backendops.request_operation",
        "cancel": "backendops.cancel_operation",
        "discard": "backendops.acknowledge_operation",
    }
    actions = deadletters.ACTIONS
    actions_detail = ["cancel", "try_now", "check_now", "redrive", "discard"]
    actions_detail_hide_default = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[PendingBackendOp]:
        return PendingBackendOp.objects.select_related("node")

    def get_urls(self) -> list[URLPattern]:
        bulk = self.admin_site.admin_view(require_POST(self.bulk))
        return [
            path("bulk/<slug:name>/", bulk, name="backendops_deadletters"),
            *super().get_urls(),
        ]

    def bulk(self, request: HttpRequest, name: str) -> HttpResponse:
        return deadletters.confirm(self, request, name)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {"title": "Dead letters", "causes": causes()[: deadletters.MOST_CAUSES]}
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[deadletters.DeadLetterList]:
        return deadletters.DeadLetterList

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """An op has no page of its own; its newest operation's shows it."""
        op = self.get_object(request, object_id)
        asked = op.operations.order_by("-requested_at").first() if op else None
        name = "operation_change" if asked else "pendingbackendop_changelist"
        return HttpResponseRedirect(
            reverse(f"admin:backendops_{name}", args=[asked.pk] if asked else [])
        )

    @display(description="What", ordering="backend")
    def what_cell(self, op: PendingBackendOp) -> SafeString:
        page = reverse("admin:backendops_pendingbackendop_change", args=[op.pk])
        return format_html(
            '<a class="cm-link cm-name" href="{}">{} {}</a>', page, op.verb.capitalize(), op.backend
        )

    @display(description="Node", ordering="node__name")
    def node_cell(self, op: PendingBackendOp) -> SafeString:
        page = reverse("admin:nodes_backendnode_change", args=[op.node_id])
        return format_html('<a class="cm-link" href="{}?tab=operations">{}</a>', page, op.node.name)

    @display(description="Last error")
    def cause_cell(self, op: PendingBackendOp) -> SafeString:
        words = op.last_error[:CAUSE] or "No error was told."
        return format_html('<span class="cm-wrap">{}</span>', words)

    @display(description="Given up", ordering="-changed_at")
    def age_cell(self, op: PendingBackendOp) -> str:
        return ago(op.changed_at, now=timezone.now())

    @display(description="")
    def verbs_cell(self, op: Any) -> SafeString:
        return shares.cell("verbs", op.share)

    @ops_action(
        "Cancel",
        verb="cancel",
        variant=ActionVariant.DANGER,
        dialog=Dialog(
            title="Cancel it on this node?",
            explain="If the node has begun it is asked to stop; if it cannot, it will finish and"
            " its result will be recorded. Other nodes are not touched.",
            submit="Cancel it here",
            leave="Keep it running",
            form=ReasonDialog,
        ),
    )
    def cancel(self, request: HttpRequest, op: PendingBackendOp, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        cancelling.cancel_op(op, by=by, now=now, reason=filled["reason"])
        return f"Cancelled {op.verb} of {op.backend} on {op.node.name}."

    @ops_action(
        "Try now",
        verb="request",
        dialog=Dialog(
            title="Try it now?",
            explain="It would be tried again by itself later. Earlier failures no longer count.",
            submit="Try now",
        ),
    )
    def try_now(self, request: HttpRequest, op: PendingBackendOp, _: Filled) -> str:
        nudging.try_now(op, by=request.user.get_username(), now=timezone.now())
        return f"{op.node.name} is asked again as soon as it takes orders."

    @ops_action(
        "Check now",
        verb="request",
        dialog=Dialog(
            title="Check the node now?",
            explain="Its inventory tells how it ended. Nothing is sent a second time.",
            submit="Check now",
        ),
    )
    def check_now(self, request: HttpRequest, op: PendingBackendOp, _: Filled) -> str:
        nudging.check_now(op, by=request.user.get_username(), now=timezone.now())
        return f"{op.node.name} is being looked at."

    @ops_action(
        "Try again",
        verb="request",
        variant=ActionVariant.PRIMARY,
        dialog=Dialog(
            title="Try it again?",
            explain="It goes back into the queue exactly as it was, with a clean slate.",
            submit="Try again",
        ),
    )
    def redrive(self, request: HttpRequest, op: PendingBackendOp, _: Filled) -> str:
        redriving.redrive([op], by=request.user.get_username(), now=timezone.now())
        return f"{op.verb} of {op.backend} on {op.node.name} is in the queue again."

    @ops_action(
        "Discard",
        verb="discard",
        dialog=Dialog(
            title="Discard this dead letter?",
            explain="It is not tried again. It stays in the record, with your reason.",
            submit="Discard",
            form=MustSayWhy,
        ),
    )
    def discard(self, request: HttpRequest, op: PendingBackendOp, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        redriving.discard([op], by=by, reason=filled["reason"], now=now)
        return f"Discarded {op.verb} of {op.backend} on {op.node.name}."
