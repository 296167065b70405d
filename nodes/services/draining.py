"""Emptying a node: ordered by an operator, or by its worker as the first step of a shutdown.

A drain keeps the replica rows: they are what everybody, the worker included, counts the running
requests by (D-39). A replica serves on until whoever stands above us can do without it; then it is
withdrawn, and stopped as soon as it is idle. The node is drained when none is left. A worker that
is stopping ends its processes itself: there all are withdrawn at once, and forgotten when idle.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from clustermgr.lib import text
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.queue import after_commit
from nodes.models import BackendNode, NodeModel
from nodes.services import announce, events, facts, replicas
from nodes.states import ReplicaState

Keep = Callable[[Sequence[NodeModel]], set[UUID]]  # which of these are still needed there

TOO_LATE = "drain deadline passed"
# A worker may take a minute to leave, and a second word would hurry it
TOLD_AGAIN_AFTER = timedelta(seconds=90)
_keepers: dict[Keep, None] = {}


@transaction.atomic
def drain(
    node: BackendNode, *, by: str, reason: str, now: datetime, deadline: datetime | None
) -> BackendNode:
    """Have the node emptied, at the latest at `deadline`; what is needed there serves meanwhile.

    Takes over a drain of the worker's own, so that it outlives the worker. Again with another
    deadline moves the deadline; again with the same one changes nothing.
    """
    why = text.reason(reason)
    facts.hold_present(node)
    if node.drain_requested_at is not None and not node.drain_by_worker:
        return _move_deadline(node, by=by, now=now, deadline=deadline)
    order = _order(by=by, reason=why, now=now, deadline=deadline)
    facts.write(node, when=Q(drain_requested_at=None) | Q(drain_by_worker=True), now=now, **order)
    events.record(
        "node.drain_requested", actor=by, now=now, node=node, reason=why, after=_deadline(node)
    )
    _withdraw(_unneeded(_replicas([node])[node.pk]), now=now)
    announce.service_lost()
    return node


@transaction.atomic
def resume(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """End a drain, whoever ordered it. Approves nobody; a cordon stays. Twice is once."""
    facts.hold_present(node)
    _end(node, actor=by, now=now)
    return node


@transaction.atomic
def stop_worker(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """Have the worker of a node that is being emptied exit when that is done. Twice is once.

    What starts it on its machine may start it again: the drain stands, the order is carried out.
    """
    facts.hold_present(node)
    why = why_not_stop_worker(node)
    if why:
        raise InvalidMove(why)
    if facts.write(node, when=Q(stop_ordered_at=None), now=now, stop_ordered_at=now):
        events.record("node.stop_ordered", actor=by, now=now, node=node)
    return node


def why_not_stop_worker(node: BackendNode) -> str:
    if node.drain_requested_at is None:
        return f"{node.name} is not being drained; drain it first."
    if node.drain_by_worker:
        return f"The worker of {node.name} is stopping already."
    return f"The worker of {node.name} has stopped already." if node.left_at else ""


@transaction.atomic
def worker_drain(node: BackendNode, *, now: datetime) -> BackendNode:
    """The worker begins to stop; an operator's drain that is already there stays his."""
    facts.hold(node)
    if node.drain_requested_at is not None or node.retired_at is not None:
        return node
    worker = events.by_worker(node)
    order = _order(by=worker, reason="the worker is stopping", now=now)
    order["drain_by_worker"] = True
    facts.write(node, when=Q(drain_requested_at=None), now=now, **order)
    events.record("node.drain_requested", actor=worker, now=now, node=node)
    _withdraw(_replicas([node])[node.pk], now=now)
    announce.service_lost()
    return node


@transaction.atomic
def worker_resume(node: BackendNode, *, now: datetime) -> BackendNode:
    """End the worker's own drain and nothing else; always a success, as workers expect."""
    facts.hold(node)
    if node.drain_by_worker:
        _end(node, actor=events.by_worker(node), now=now)
    return node


@transaction.atomic
def finish_drains(*, now: datetime) -> list[BackendNode]:
    """Withdraw and stop what can go from nodes that are being emptied; close drains that are done.

    A fixed number of statements, however many nodes. The replicas are locked before their
    requests are counted: a request that was being routed when the drain began still counts.
    A deadline always wins: over requests, over replacements, over workers that do not answer.
    """
    nodes = list(facts.lockable().being_emptied().order_by("pk"))
    rows = _replicas(nodes)
    busy = Counter({node.pk: sum(row.in_flight for row in rows[node.pk]) for node in nodes})
    overdue = [node for node in nodes if rows[node.pk] and _overdue(node, now)]
    leaving = [node for node in nodes if node.drain_by_worker and not busy[node.pk]]
    waiting = [node for node in nodes if node not in overdue and node not in leaving]
    _let_go([row for node in waiting for row in rows[node.pk]], now=now)
    _stop([row for node in overdue for row in rows[node.pk]], now=now)
    gone = NodeModel.objects.filter(node__in=leaving)
    replicas.remove(gone, reason="the worker is stopping")
    drained = [node for node in nodes if node in leaving or not rows[node.pk]]
    _close(drained, reason="drained", busy=busy, now=now)
    _close([n for n in overdue if n not in drained], reason=TOO_LATE, busy=busy, now=now)
    return [node for node in nodes if node.drained_at is not None]


@transaction.atomic
def dismiss_workers(*, now: datetime) -> None:
    """Have those told that are to exit, once their nodes are empty.

    Nobody confirms it, so it is said again now and then, until the worker says goodbye. Apart from
    `finish_drains`: nodes are locked by id, and that has others by then.
    """
    due = BackendNode.objects.to_be_stopped(told_before=now - TOLD_AGAIN_AFTER)
    ids = list(due.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
    if not ids:
        return
    BackendNode.objects.filter(pk__in=ids).update(stop_told_at=now, **facts.edited(now))
    for node_id in ids:
        after_commit("nodes.stop_worker", str(node_id), now.isoformat())


def dismiss(node_id: UUID, *, told_at: datetime, tell: Callable[[UUID], None]) -> bool:
    """Tell one worker to exit, unless that was called off or carried out since; whether it was."""
    ordered = BackendNode.objects.present().filter(stop_ordered_at__isnull=False)
    stands = ordered.filter(pk=node_id, stop_told_at=told_at).exists()
    if stands:
        tell(node_id)
    return stands


def ask_before_stopping(keep: Keep) -> None:
    """Have somebody asked which replicas are still needed where they are. Twice is once."""
    _keepers[keep] = None


def _order(
    *, by: str, reason: str, now: datetime, deadline: datetime | None = None
) -> dict[str, Any]:
    return {
        **facts.NO_DRAIN,
        "drain_requested_at": now,
        "drain_requested_by": by,
        "drain_reason": reason,
        "drain_deadline": deadline,
    }


def _deadline(node: BackendNode) -> dict[str, Any]:
    return {"deadline": node.drain_deadline}


def _move_deadline(
    node: BackendNode, *, by: str, now: datetime, deadline: datetime | None
) -> BackendNode:
    before = _deadline(node)
    if node.drained_at is None and node.drain_deadline != deadline:
        facts.write(node, when=Q(drained_at=None), now=now, drain_deadline=deadline)
        events.record(
            "node.drain_moved", actor=by, now=now, node=node, before=before, after=_deadline(node)
        )
    return node


def _end(node: BackendNode, *, actor: str, now: datetime) -> None:
    before = {"drain_requested_by": node.drain_requested_by, "reason": node.drain_reason}
    draining = Q(drain_requested_at__isnull=False)
    if facts.write(node, when=draining, now=now, **facts.NO_DRAIN):
        replicas.restore(node, now=now)
        events.record("node.resumed", actor=actor, now=now, node=node, before=before)
        announce.capacity_changed(node.pk)


def _replicas(nodes: Sequence[BackendNode]) -> dict[UUID, list[NodeModel]]:
    held: dict[UUID, list[NodeModel]] = {node.pk: [] for node in nodes}
    rows = NodeModel.objects.filter(node__in=nodes).order_by("pk").select_for_update(no_key=True)
    for row in rows:
        held[row.node_id].append(row)
    return held


def _let_go(rows: Sequence[NodeModel], *, now: datetime) -> None:
    """No new requests for what nobody needs here; once nobody waits for its answer, it stops."""
    free = _unneeded(rows)
    _withdraw([row for row in free if row.in_flight], now=now)
    _stop([row for row in free if not row.in_flight], now=now)


def _unneeded(rows: Sequence[NodeModel]) -> list[NodeModel]:
    """Those loaded that can go; who was withdrawn once is not asked about again."""
    loaded = [row for row in rows if row.state == ReplicaState.LOADED]
    in_question = [row for row in loaded if row.withdrawn_at is None]
    kept = {pk for keep in _keepers for pk in keep(in_question)} if in_question else set()
    return [row for row in loaded if row.pk not in kept]


def _withdraw(rows: Sequence[NodeModel], *, now: datetime) -> None:
    ids = [row.pk for row in rows if row.withdrawn_at is None]
    if ids:
        NodeModel.objects.filter(pk__in=ids).update(withdrawn_at=now, updated_at=now)


def _stop(rows: Sequence[NodeModel], *, now: datetime) -> None:
    """Whoever stops processes hears of it; the slot stays taken until the worker has confirmed."""
    ids = [row.pk for row in rows if row.state != ReplicaState.UNLOADING]
    if not ids:
        return
    order = {"cleanup_error": "", "cleanup_attempts": 0, "cleanup_next_retry_at": now}
    NodeModel.objects.filter(pk__in=ids).update(
        state=ReplicaState.UNLOADING, updated_at=now, **order
    )
    for replica_id in ids:
        announce.replica_unloading(replica_id)


def _overdue(node: BackendNode, now: datetime) -> bool:
    return node.drain_deadline is not None and node.drain_deadline <= now


def _close(
    nodes: Sequence[BackendNode], *, reason: str, busy: Counter[UUID], now: datetime
) -> None:
    if not nodes:
        return
    ids = [node.pk for node in nodes]
    BackendNode.objects.filter(pk__in=ids).update(drained_at=now, **facts.edited(now))
    for node in nodes:
        node.drained_at = now
    events.record_all(
        events.build(
            "node.drained",
            actor=events.SYSTEM,
            now=now,
            node=node,
            reason=reason,
            after={"requests_cut_off": busy[node.pk]},
        )
        for node in nodes
    )
