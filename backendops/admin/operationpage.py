"""What an operation's page shows: facts, every node, and what happened; paged for big fleets."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from backendops.models import Operation, PendingBackendOp
from backendops.presenting import buttons, lines, shares
from backendops.presenting.timeline import timeline
from backendops.services.catalog import FETCHES
from backendops.states import OpState

PER_PAGE = 50


def may(request: HttpRequest) -> Callable[[str], bool]:
    """Whether the user may press a button, by its verb."""
    return lambda verb: request.user.has_perm(buttons.NEEDS[verb])


def context(request: HttpRequest, operation: Operation) -> dict[str, Any]:
    """Everything the template needs; a fixed number of queries."""
    now = timezone.now()
    state = request.GET.get("state", "")
    number = _page(request)
    ops = PendingBackendOp.objects.filter(operations=operation).select_related("node")
    if state in OpState.values:
        ops = ops.filter(state=state)
    start = (number - 1) * PER_PAGE
    rows = list(ops.order_by("node__name", "id")[start : start + PER_PAGE + 1])
    found = shares.shares(rows[:PER_PAGE], may=may(request), now=now)
    return {
        **head(request, operation, now=now),
        "title": str(operation).capitalize(),
        "facts": facts(operation),
        "rows": [(one, {name: shares.cell(name, one) for name in shares.LIVE}) for one in found],
        "op_ids": ",".join(str(one.op.pk) for one in found),
        "chosen_state": state,
        "later": number + 1 if len(rows) > PER_PAGE else None,
        "earlier": number - 1 if number > 1 else None,
        "retries": list(operation.retries.all()[:20]),
        "now": now,
    }


def head(request: HttpRequest, operation: Operation, *, now: datetime) -> dict[str, Any]:
    """The part that a refresh replaces as a whole, its buttons included."""
    [line] = lines.lines([operation], now=now)
    counts = [(state.value, count) for state, count in line.roll.counts.items() if count]
    allowed = may(request)
    return {
        "operation": operation,
        "line": line,
        "counts": counts,
        "timeline": timeline(operation),
        "buttons": [one for one in buttons.of_operation(line.roll) if allowed(one.verb)],
    }


def facts(operation: Operation) -> list[tuple[str, str]]:
    galleries = ", ".join(one.get("name") or one["url"] for one in operation.galleries)
    if operation.verb in FETCHES and not operation.uri:
        galleries = galleries or "each worker's own"
    told = [
        ("Verb", operation.verb),
        ("Backend", operation.backend),
        ("From", operation.uri),
        ("Name", operation.name),
        ("Alias", operation.alias),
        ("Galleries", galleries),
        ("Where", operation.target),
        ("Requested by", operation.requested_by),
        ("Requested at", f"{operation.requested_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("Reason", operation.reason),
        ("Dismissed", _dismissed(operation)),
        ("Id", str(operation.pk)),
    ]
    return [(title, text) for title, text in told if text]


def _dismissed(operation: Operation) -> str:
    if operation.acknowledged_at is None:
        return ""
    return f"by {operation.acknowledged_by} at {operation.acknowledged_at:%Y-%m-%d %H:%M} UTC"


def _page(request: HttpRequest) -> int:
    asked = request.GET.get("p", "1")
    return max(int(asked), 1) if asked.isdecimal() and len(asked) < 6 else 1
