"""Cancel: durable at once, and honest about what a node can no longer be kept from doing."""

from datetime import datetime, timedelta

from django.db import transaction

from backendops.models import Operation, PendingBackendOp
from backendops.querysets import PendingBackendOpQuerySet
from backendops.services import changes
from backendops.services.summaries import cancellable
from backendops.states import OUTSTANDING, WAITING, OpState, Verb
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.queue import after_commit
from clustermgr.lib.text import reason as one_line
from nodes.services import events

ASKED = "The node was asked to stop."
LOOK_AFTER = timedelta(seconds=30)  # if nobody who waits for the node tells how it ended


@transaction.atomic
def cancel(operation: Operation, *, by: str, now: datetime, reason: str = "") -> int:
    """Stop what can be stopped of it; the number of nodes concerned."""
    ops = list(_hold(PendingBackendOp.objects.filter(operations=operation)))
    hit = [op for op in ops if cancellable(op)]
    if not hit:
        raise InvalidMove(_why_not(operation, ops))
    _cancel(hit, by=by, now=now, reason=one_line(reason))
    events.record(
        "operation.cancelled",
        actor=by,
        now=now,
        subject=str(operation),
        reason=one_line(reason),
        after={"operation": operation.pk, "nodes": len(hit)},
    )
    return len(hit)


@transaction.atomic
def cancel_op(op: PendingBackendOp, *, by: str, now: datetime, reason: str = "") -> None:
    """Stop one node's share."""
    [held] = _hold(PendingBackendOp.objects.filter(pk=op.pk))
    if not cancellable(held):
        raise InvalidMove(_why_not_op(held))
    _cancel([held], by=by, now=now, reason=one_line(reason))
    events.record(
        "op.cancelled",
        actor=by,
        now=now,
        node=held.node,
        reason=one_line(reason),
        after={"verb": held.verb, "backend": held.backend, "op": held.pk},
    )


@transaction.atomic
def cancel_pointless(*, now: datetime) -> int:
    """Orders for nodes that are being emptied or were sent away will never be carried out."""
    ops = list(_hold(PendingBackendOp.objects.all().pointless()))
    for op in ops:
        gone = "retired" if op.node.retired_at else "being drained"
        _end([op], note=f"Cancelled: {op.node.name} is {gone}.", now=now)
    events.record_all(
        events.build(
            "op.cancelled",
            actor=events.SYSTEM,
            now=now,
            node=op.node,
            reason="The node is being emptied or was retired.",
            after={"verb": op.verb, "backend": op.backend, "op": op.pk},
        )
        for op in ops
    )
    return len(ops)


def _hold(rows: PendingBackendOpQuerySet) -> PendingBackendOpQuerySet:
    held = rows.select_related("node").order_by("id")
    return held.select_for_update(no_key=True, of=("self",))


def _cancel(ops: list[PendingBackendOp], *, by: str, now: datetime, reason: str) -> None:
    why = f" {reason}" if reason else ""
    waiting = [op for op in ops if op.state in WAITING]
    sent = [op for op in ops if op.state not in WAITING]
    _end(waiting, note=f"Cancelled by {by}.{why}", now=now)
    changes.change(
        PendingBackendOp.objects.filter(pk__in=[op.pk for op in sent]),
        OpState.CANCELLING,
        now=now,
        due_at=now + LOOK_AFTER,
        note=f"Cancelled by {by}.{why} {ASKED}"[:500],
    )
    for op in sent:
        after_commit("backendops.send_cancel", op.pk)


def _end(ops: list[PendingBackendOp], *, note: str, now: datetime) -> None:
    rows = PendingBackendOp.objects.filter(pk__in=[op.pk for op in ops])
    changes.change(rows, OpState.CANCELLED, now=now, finished_at=now, note=note[:500])


def _why_not(operation: Operation, ops: list[PendingBackendOp]) -> str:
    under_way = [op for op in ops if op.state in OUTSTANDING]
    if not under_way:
        return f"{operation} is over; there is nothing to cancel."
    return _why_not_op(under_way[0])


def _why_not_op(op: PendingBackendOp) -> str:
    if op.state == OpState.CANCELLING:
        return f"{op.verb} of {op.backend} on {op.node.name} is already being cancelled."
    if op.verb == Verb.DELETE and op.state in OUTSTANDING:
        return f"{op.node.name} is deleting {op.backend}; that is not stopped halfway."
    return f"{op.verb} of {op.backend} on {op.node.name} is {op.state}; it cannot be cancelled."
