"""Emptying a node: ordered by an operator, or by its worker as the first step of a shutdown.

A drain keeps the replica rows. They are not routable any more, and they are what everybody,
the worker included, counts the running requests by (D-39).
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from clustermgr.lib import text
from nodes.models import BackendNode, NodeModel
from nodes.services import announce, events, facts, replicas


@transaction.atomic
def drain(
    node: BackendNode, *, by: str, reason: str, now: datetime, deadline: datetime | None
) -> BackendNode:
    """Take the node out of rotation until it is empty, or until `deadline`.

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
    return node


@transaction.atomic
def resume(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """End a drain, whoever ordered it. Approves nobody; a cordon stays. Twice is once."""
    facts.hold_present(node)
    _end(node, actor=by, now=now)
    return node


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
    """Close the drains of nodes that are empty or overdue, and forget their replicas.

    A fixed number of statements, however many nodes. The replicas are locked before their
    requests are counted: a request that was being routed when the drain began still counts.
    """
    nodes = list(facts.lockable().being_emptied().order_by("pk"))
    busy = _busy(nodes)
    drained = [node for node in nodes if node.pk not in busy]
    overdue = [node for node in nodes if node.pk in busy and _overdue(node, now)]
    _close(drained, reason="drained", busy=busy, now=now)
    _close(overdue, reason="drain deadline passed", busy=busy, now=now)
    return drained + overdue


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
        events.record("node.resumed", actor=actor, now=now, node=node, before=before)
        announce.capacity_changed(node.pk)


def _busy(nodes: Sequence[BackendNode]) -> Counter[UUID]:
    """Running requests per node that has any."""
    rows = NodeModel.objects.filter(node__in=nodes).order_by("pk").select_for_update(no_key=True)
    busy: Counter[UUID] = Counter()
    for node_id, in_flight in rows.values_list("node_id", "in_flight"):
        busy[node_id] += in_flight
    return +busy  # without the zeros


def _overdue(node: BackendNode, now: datetime) -> bool:
    return node.drain_deadline is not None and node.drain_deadline <= now


def _close(
    nodes: Sequence[BackendNode], *, reason: str, busy: Counter[UUID], now: datetime
) -> None:
    if not nodes:
        return
    ids = [node.pk for node in nodes]
    BackendNode.objects.filter(pk__in=ids).update(drained_at=now, **facts.edited(now))
    replicas.remove(NodeModel.objects.filter(node__in=ids), reason=reason)
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
