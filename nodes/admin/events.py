"""What happened: the history, and the part of it that waits for somebody to look."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    ChoicesDropdownFilter,
    DropdownFilter,
)
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.paginator import InfinitePaginator

from clustermgr.lib.admin import Dialog, EmptyHint, ReadOnlyAdmin, ops_action, run_each
from nodes.admin.filters import known
from nodes.models import ClusterEvent
from nodes.presenting.words import in_words
from nodes.services import events
from nodes.states import Severity

MOST_URGENT = 10


class KindFilter(DropdownFilter):
    """By noun: the past participles are too many for a list."""

    title = "about"
    parameter_name = "about"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(f"{noun}.", noun) for noun in ("node", "token", "join", "worker", "cluster")]

    def queryset(self, request: HttpRequest, rows: QuerySet) -> QuerySet:
        return rows.filter(kind__startswith=self.value()) if known(self) else rows


class OpenFilter(DropdownFilter):
    title = "acknowledgement"
    parameter_name = "open"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "waits for somebody"), ("no", "acknowledged")]

    def queryset(self, request: HttpRequest, rows: QuerySet) -> QuerySet:
        match self.value():
            case "yes":
                return rows.filter(severity=Severity.ATTENTION, acknowledged_at=None)
            case "no":
                return rows.filter(acknowledged_at__isnull=False)
        return rows


@admin.register(ClusterEvent)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "what", "severity_chip", "who", "actor", "reason", "seen"]
    list_display_links = ["what"]
    list_filter = [
        KindFilter,
        OpenFilter,
        ("severity", ChoicesDropdownFilter),
        ("node", AutocompleteSelectFilter),
    ]
    list_filter_submit = True
    list_select_related = ["node"]
    search_fields = ["subject", "kind", "reason", "actor"]
    paginator = InfinitePaginator  # counting a history of millions is not worth a page number
    empty_hint = EmptyHint(title="Nothing has happened yet")
    list_before_template = "console/nodes/before_events.html"
    fields = [
        *("at", "kind", "severity", "who", "actor", "reason", "before", "after"),
        *("request_id", "acknowledged_at", "acknowledged_by"),
    ]
    readonly_fields = ["who"]
    actions = ["acknowledge_selected"]
    actions_detail = ["acknowledge"]
    verbs = {"acknowledge": "nodes.change_clusterevent"}

    def offers(self, action_name: str, row: ClusterEvent) -> bool:
        return row.severity == Severity.ATTENTION and row.acknowledged_at is None

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        waiting = ClusterEvent.objects.filter(severity=Severity.ATTENTION, acknowledged_at=None)
        context = {
            "title": "Events",
            "urgent": [(event, in_words(event.kind)) for event in waiting[:MOST_URGENT]],
            "may_acknowledge": request.user.has_perm("nodes.change_clusterevent"),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    @display(description="What")
    def what(self, event: ClusterEvent) -> str:
        return in_words(event.kind)

    @display(description="Severity", label={"attention": "warning", "info": "default"})
    def severity_chip(self, event: ClusterEvent) -> str:
        return event.severity

    @display(description="Who")
    def who(self, event: ClusterEvent) -> str | SafeString:
        if event.node_id is None:
            return event.subject
        page = reverse("admin:nodes_backendnode_change", args=[event.node_id])
        return format_html('<a class="cm-link" href="{}?tab=events">{}</a>', page, event.subject)

    @display(description="Acknowledged")
    def seen(self, event: ClusterEvent) -> str:
        if event.acknowledged_at is not None:
            return f"by {event.acknowledged_by}"
        return "waits" if event.severity == Severity.ATTENTION else ""

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge_selected(self, request: HttpRequest, rows: QuerySet[ClusterEvent]) -> None:
        by, now = request.user.get_username(), timezone.now()
        waiting = rows.filter(acknowledged_at=None)
        run_each(
            self,
            request,
            waiting,
            lambda event: events.acknowledge(event, by=by, now=now),
            done="Acknowledged",
        )

    @ops_action(
        "Acknowledge",
        verb="acknowledge",
        icon="check",
        variant=ActionVariant.PRIMARY,
        dialog=Dialog(
            title="Acknowledge this event?",
            explain="It leaves the attention list and stays in the history.",
            submit="Acknowledge",
        ),
    )
    def acknowledge(self, request: HttpRequest, event: ClusterEvent, _: dict[str, Any]) -> str:
        events.acknowledge(event, by=request.user.get_username(), now=timezone.now())
        return f"Acknowledged: {in_words(event.kind)}, {event.subject}."
