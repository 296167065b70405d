"""Failures: tried again exactly as they were, put back, or let go; never lost on the way."""

from collections.abc import Sequence
from datetime import datetime

from django.db import IntegrityError, transaction

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import changes, requesting
from backendops.services.requesting import Placed
from backendops.states import ATTENTION, OpState, Verb
from clustermgr.lib.errors import Conflict, InvalidInput, InvalidMove
from clustermgr.lib.queue import after_commit
from clustermgr.lib.text import reason as one_line
from nodes.services import events


@transaction.atomic
def retry(operation: Operation, *, by: str, now: datetime) -> Placed:
    """Ask again on exactly the nodes that failed, with verb and parameters as they were."""
    bad = PendingBackendOp.objects.filter(operations=operation, state__in=ATTENTION)
    ops = list(bad.order_by("id").select_for_update(no_key=True, of=("self",)))
    if not ops:
        raise InvalidMove(f"{operation} has not failed on any node.")
    dead = [op for op in ops if op.state == OpState.DEAD]
    changes.supersede(dead, by=f"a retry by {by}", now=now)
    order = Order.of(
        Verb(operation.verb),
        backend=operation.backend,
        galleries=operation.galleries,
        uri=operation.uri,
        name=operation.name,
        alias=operation.alias,
    )
    target = Target(nodes=tuple(op.node_id for op in ops), despite_mismatch=True)
    placed = requesting.place(order, target, by=by, now=now, retry_of=operation)
    if placed.operation != operation:  # else it is under way again itself
        _dismiss(operation, by=by, now=now)
    return placed


@transaction.atomic
def redrive(ops: Sequence[PendingBackendOp], *, by: str, now: datetime) -> int:
    """Put dead letters back into the queue, with a clean slate."""
    rows = PendingBackendOp.objects.filter(pk__in=[op.pk for op in ops], state=OpState.DEAD)
    held = list(rows.select_related("node").order_by("id").select_for_update(of=("self",)))
    if not held:
        raise InvalidMove("None of these is a dead letter any more.")
    try:
        with transaction.atomic():
            changes.requeue([op.pk for op in held], now=now)
    except IntegrityError:
        raise Conflict(
            "A newer order for the same backend is outstanding on one of these nodes;"
            " discard the dead letter instead."
        ) from None
    _remember("op.redriven", held, by=by, now=now)
    after_commit("backendops.dispatch")
    return len(held)


@transaction.atomic
def discard(ops: Sequence[PendingBackendOp], *, by: str, reason: str, now: datetime) -> int:
    """Let dead letters go; they stay in the record, with the reason."""
    why = one_line(reason)
    if not why:
        raise InvalidInput("Say why: whoever finds it missing will ask.")
    rows = PendingBackendOp.objects.filter(pk__in=[op.pk for op in ops], state=OpState.DEAD)
    held = list(rows.select_related("node").order_by("id").select_for_update(of=("self",)))
    if not held:
        raise InvalidMove("None of these is a dead letter any more.")
    changes.change(
        PendingBackendOp.objects.filter(pk__in=[op.pk for op in held]),
        OpState.CANCELLED,
        now=now,
        finished_at=now,
        note=f"Discarded by {by}: {why}"[:500],
    )
    _remember("op.discarded", held, by=by, now=now, reason=why)
    return len(held)


@transaction.atomic
def acknowledge(operation: Operation, *, by: str, now: datetime) -> None:
    """Dismiss a failure: it leaves the live list and stays in the record."""
    under_way = PendingBackendOp.objects.filter(operations=operation).outstanding()
    if under_way.exclude(state=OpState.FAILED).exists():
        raise InvalidMove(f"{operation} is still under way; dismissing would hide it.")
    if _dismiss(operation, by=by, now=now):
        events.record(
            "operation.acknowledged",
            actor=by,
            now=now,
            subject=str(operation),
            after={"operation": operation.pk},
        )


def _dismiss(operation: Operation, *, by: str, now: datetime) -> bool:
    rows = Operation.objects.filter(pk=operation.pk, acknowledged_at=None)
    return bool(rows.update(acknowledged_at=now, acknowledged_by=by))


def _remember(
    kind: str, ops: Sequence[PendingBackendOp], *, by: str, now: datetime, reason: str = ""
) -> None:
    events.record_all(
        events.build(
            kind,
            actor=by,
            now=now,
            node=op.node,
            reason=reason or op.last_error,
            after={"verb": op.verb, "backend": op.backend, "op": op.pk},
        )
        for op in ops
    )
