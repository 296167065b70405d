"""What the list of operations can be narrowed by."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter, RangeDateFilter, TextFilter

from backendops.models import OperationShare
from backendops.querysets import OperationQuerySet
from backendops.states import ATTENTION, OperationState

LIVE, WAITS = "live", "attention"


class StateFilter(DropdownFilter):
    """The computed state; and the two sets an operator asks for first."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        states = [(state.value, state.value.replace("_", " ")) for state in OperationState]
        return [(LIVE, "under way or failed"), (WAITS, "needs attention"), *states]

    def queryset(self, request: HttpRequest, rows: OperationQuerySet) -> OperationQuerySet:
        wanted = self.value()
        if wanted == LIVE:
            return rows.live()
        if wanted == WAITS:
            return rows.having(*ATTENTION).filter(acknowledged_at=None)
        return rows.in_state(OperationState(wanted)) if wanted in OperationState.values else rows


class PartOf(TextFilter):
    """A piece of text in a column; what PostgreSQL cannot store is in none."""

    column = ""

    def queryset(self, request: HttpRequest, rows: OperationQuerySet) -> OperationQuerySet:
        wanted = (self.value() or "").replace("\x00", "")
        return rows.filter(**{f"{self.column}__icontains": wanted}) if wanted else rows


class BackendFilter(PartOf):
    title = parameter_name = column = "backend"


class ActorFilter(PartOf):
    title = "requested by"
    parameter_name = "actor"
    column = "requested_by"


class DayFilter(RangeDateFilter):
    """From one day to another, both whole; the theme's compares with midnight."""

    def queryset(self, request: HttpRequest, rows: OperationQuerySet) -> OperationQuerySet:
        since, until = (self._day(end) for end in ("from", "to"))
        if since is not None:
            rows = rows.filter(**{f"{self.parameter_name}__gte": since})
        if until is not None:
            rows = rows.filter(**{f"{self.parameter_name}__lt": until + timedelta(days=1)})
        return rows

    def _day(self, end: str) -> datetime | None:
        try:
            day = date.fromisoformat(self.used_parameters.get(f"{self.parameter_name}_{end}", ""))
        except ValueError:
            return None
        return datetime.combine(day, time(), tzinfo=UTC)


class NodeFilter(TextFilter):
    """A node's name; not joined, so that a fan-out stays one row."""

    title = parameter_name = "node"

    def queryset(self, request: HttpRequest, rows: OperationQuerySet) -> OperationQuerySet:
        wanted = (self.value() or "").replace("\x00", "")
        if not wanted:
            return rows
        there = OperationShare.objects.filter(
            operation=OuterRef("pk"), op__node__name__icontains=wanted
        )
        return rows.filter(Exists(there))
