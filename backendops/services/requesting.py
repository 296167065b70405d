"""Takes an order: everything is decided and written in one short transaction, nothing is sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target, digest
from backendops.querysets import any_of
from backendops.services import changes, inserting, targeting
from backendops.services.targeting import Addressee, Chosen, Skipped
from backendops.states import WAITING, OpState
from clustermgr.lib.errors import Conflict, DomainError
from clustermgr.lib.queue import after_commit
from clustermgr.lib.text import checked
from clustermgr.lib.text import reason as one_line
from nodes.models import BackendNode
from nodes.services import events

RACES = 5  # two equal requests at the same moment: the constraint picks one, the other looks again


class KeyReused(DomainError):
    """The idempotency key came with something else before."""

    code = "idempotency_key_reused"
    http_status = 422


class BlockedByOperation(Conflict):
    """Another order for the same backend is at work on the node."""

    code = "blocked_by_operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    operation: Operation
    created: bool  # False: the same work was asked for before, and this is it


@dataclass(slots=True, kw_only=True)
class Sorting:
    """What becomes of each node's share."""

    fresh: list[Addressee]
    joined: list[PendingBackendOp]
    superseded: list[PendingBackendOp]
    blocked: list[Skipped]


def place(
    order: Order,
    target: Target,
    *,
    by: str,
    now: datetime,
    reason: str = "",
    key: str = "",
    retry_of: Operation | None = None,
) -> Placed:
    """Write down an operation and its ops, or find the one that does the same already."""
    key = checked(key.strip(), field="The idempotency key", limit=255)
    reason = one_line(reason)
    for _ in range(RACES):
        try:
            return _place(order, target, by=by, now=now, reason=reason, key=key, retry_of=retry_of)
        except IntegrityError as race:
            lost = race
    raise lost


@transaction.atomic
def _place(
    order: Order,
    target: Target,
    *,
    by: str,
    now: datetime,
    reason: str,
    key: str,
    retry_of: Operation | None,
) -> Placed:
    wish = digest(order, target)
    if key and (known := Operation.objects.filter(requested_by=by, idempotency_key=key).first()):
        return _repeated(known, wish)
    chosen = targeting.choose(order, target)
    sorting = _sort(order, chosen)
    if (same := _same_work(sorting)) is not None and not key:
        _nudge(sorting.joined, now=now)
        _bring_back(same)
        return Placed(operation=same, created=False)
    if not sorting.fresh and not sorting.joined:
        raise BlockedByOperation(" ".join(skip.why for skip in sorting.blocked[:5]))
    changes.supersede(sorting.superseded, by=f"{order.verb} by {by}", now=now)
    operation = Operation.objects.create(
        **order.columns(),
        target=chosen.words,
        skipped=_told([*chosen.skipped, *sorting.blocked]),
        requested_by=by,
        requested_at=now,
        reason=reason,
        retry_of=retry_of,
        idempotency_key=key or None,
        request_digest=wish,
    )
    _nudge(sorting.joined, now=now)
    _insert(operation, order, sorting, now=now)
    _remember(operation, sorting, by=by, now=now)
    after_commit("backendops.dispatch")
    return Placed(operation=operation, created=True)


def _bring_back(operation: Operation) -> None:
    """Somebody had dismissed it and it is wanted again: how it ends is to be seen."""
    dismissed = Operation.objects.filter(pk=operation.pk, acknowledged_at__isnull=False)
    if dismissed.update(acknowledged_at=None, acknowledged_by=""):
        operation.refresh_from_db()


def _repeated(known: Operation, wish: str) -> Placed:
    if known.request_digest != wish:
        raise KeyReused(f"This idempotency key was used for another request: {known} ({known.pk}).")
    return Placed(operation=known, created=False)


def preview(order: Order, target: Target) -> tuple[Chosen, Sorting]:
    """What `place` would do now; writes and holds nothing."""
    chosen = targeting.choose(order, target)
    return chosen, _judge(order, chosen, busy_nodes(order.backend, _ids(chosen)))


def _ids(chosen: Chosen) -> list[UUID]:
    return [node.pk for node in chosen.nodes]


def _sort(order: Order, chosen: Chosen) -> Sorting:
    """Hold what is outstanding on these nodes, and decide for each node."""
    there = PendingBackendOp.objects.outstanding().filter(
        backend=order.backend, node__in=any_of(_ids(chosen))
    )
    held = there.order_by("id").select_for_update(no_key=True, of=("self",))
    return _judge(order, chosen, {op.node_id: op for op in held})


def _judge(order: Order, chosen: Chosen, by_node: Mapping[UUID, PendingBackendOp]) -> Sorting:
    sorting = Sorting(fresh=[], joined=[], superseded=[], blocked=[])
    for node in chosen.nodes:
        op = by_node.get(node.pk)
        if op is None:
            sorting.fresh.append(node)
        elif _same(op, order) and op.state != OpState.CANCELLING:
            sorting.joined.append(op)
        elif op.state in WAITING:
            sorting.superseded.append(op)
            sorting.fresh.append(node)
        else:
            sorting.blocked.append(Skipped(node=node, why=_blocker(op, node)))
    return sorting


def _same(op: PendingBackendOp, order: Order) -> bool:
    return all(getattr(op, column) == value for column, value in order.columns().items())


def _blocker(op: PendingBackendOp, node: Addressee) -> str:
    return f"{op.verb} of {op.backend} is {op.state} on {node.name}; cancel it or wait for it."


def _same_work(sorting: Sorting) -> Operation | None:
    """The newest operation that consists of exactly these ops, if nothing else is needed."""
    if sorting.fresh or sorting.blocked or not sorting.joined:
        return None
    wanted = {op.pk for op in sorting.joined}
    first = sorting.joined[0]
    for operation in Operation.objects.filter(shares__op=first).order_by("-requested_at"):
        ops = operation.shares.values_list("op_id", flat=True)
        if set(ops) == wanted:
            return operation
    return None


def _nudge(ops: Sequence[PendingBackendOp], *, now: datetime) -> None:
    """Asked for again: what waits is due now, and its old failures no longer count."""
    waiting = [op.pk for op in ops if op.state in WAITING]
    if waiting:
        changes.requeue(waiting, now=now)
        after_commit("backendops.dispatch")


def _insert(operation: Operation, order: Order, sorting: Sorting, *, now: datetime) -> None:
    pattern = PendingBackendOp(
        **order.columns(), state=OpState.QUEUED, created_at=now, changed_at=now, due_at=now
    )
    nodes, joined = [node.pk for node in sorting.fresh], [op.pk for op in sorting.joined]
    inserting.insert(operation.pk, pattern, nodes=nodes, joined=joined)


def _remember(operation: Operation, sorting: Sorting, *, by: str, now: datetime) -> None:
    alone = sorting.fresh[0] if len(sorting.fresh) == 1 and not sorting.joined else None
    events.record(
        "operation.requested",
        actor=by,
        now=now,
        node=BackendNode.objects.only("name").get(pk=alone.pk) if alone else None,
        subject=str(operation),
        reason=operation.reason,
        after={
            "operation": operation.pk,
            "target": operation.target,
            "nodes": len(sorting.fresh) + len(sorting.joined),
            "joined": len(sorting.joined),
            "skipped": len(operation.skipped),
        },
    )


def _told(skipped: Sequence[Skipped]) -> list[dict[str, str]]:
    return [
        {"node": str(skip.node.pk), "name": skip.node.name, "why": skip.why} for skip in skipped
    ]


def busy_nodes(backend: str, nodes: Sequence[UUID]) -> dict[UUID, PendingBackendOp]:
    """For a page: what is outstanding for this backend on these nodes."""
    rows = PendingBackendOp.objects.outstanding().filter(backend=backend, node__in=any_of(nodes))
    return {op.node_id: op for op in rows}
