"""A node's life after it was let in: cordon, reachability, goodbye."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from clustermgr.lib import text
from clustermgr.lib.machine import move
from nodes.models import BackendNode, NodeModel
from nodes.services import announce, events, facts, replicas
from nodes.states import Liveness


@transaction.atomic
def cordon(node: BackendNode, *, by: str, reason: str, now: datetime) -> BackendNode:
    """Put nothing new on the node; it keeps serving what it has. Twice is once."""
    why = text.reason(reason)
    facts.hold_present(node)
    order = {"cordoned_at": now, "cordoned_by": by, "cordon_reason": why}
    if facts.write(node, when=Q(cordoned_at=None), now=now, **order):
        events.record("node.cordoned", actor=by, now=now, node=node, reason=why)
    return node


@transaction.atomic
def uncordon(node: BackendNode, *, by: str, now: datetime, reason: str = "") -> BackendNode:
    """Let new work come again. Twice is once."""
    why = text.reason(reason)
    facts.hold_present(node)
    before = {"cordoned_by": node.cordoned_by, "reason": node.cordon_reason}
    nothing = {"cordoned_at": None, "cordoned_by": "", "cordon_reason": ""}
    if facts.write(node, when=Q(cordoned_at__isnull=False), now=now, **nothing):
        events.record("node.uncordoned", actor=by, now=now, node=node, reason=why, before=before)
        announce.capacity_changed(node.pk)
    return node


@transaction.atomic
def mark_unreachable(node_id: UUID, *, now: datetime, reason: str) -> bool:
    """Nobody answered a command: route elsewhere, keep the rows. False when nothing changed.

    Only from healthy: an offline node stays offline, and a drain is another fact, which this
    cannot overwrite.
    """
    node = facts.lockable().get(pk=node_id)
    if node.liveness != Liveness.HEALTHY:
        return False
    _become(node, Liveness.UNHEALTHY, kind="node.unreachable", reason=reason, now=now)
    announce.service_lost()
    return True


@transaction.atomic
def mark_reachable(node_id: UUID, *, now: datetime, reason: str) -> bool:
    """The node answered again. Only from unhealthy: an answer does not revive who left."""
    node = facts.lockable().get(pk=node_id)
    if node.liveness != Liveness.UNHEALTHY:
        return False
    _become(node, Liveness.HEALTHY, kind="node.reachable", reason=reason, now=now)
    announce.capacity_changed(node.pk)
    return True


def restart_of(node: BackendNode) -> Callable[[], bool] | None:
    """Tells, whenever asked, whether another process is the worker by now.

    LocalAI's workers do not say which process they are. Asked during a wait, so it holds no
    connection.
    """
    known = node.boot_id
    if not known:
        return None

    def restarted() -> bool:
        try:
            return BackendNode.objects.filter(pk=node.pk).exclude(boot_id=known).exists()
        finally:
            connection.close()

    return restarted


@transaction.atomic
def leave(node: BackendNode, *, now: datetime) -> BackendNode:
    """The worker stops by itself: gone until it registers again, however fresh its last beat.

    Its own drain ends with it, having done its work; an operator's does not. Twice is once.
    """
    facts.hold(node)
    if node.left_at is None and node.retired_at is None:
        _say_goodbye(node, now)
    return node


def _say_goodbye(node: BackendNode, now: datetime) -> None:
    before = node.liveness
    # Whoever was told to stop has obeyed: if it is started again, it is not told again
    over = facts.NO_DRAIN if node.drain_by_worker else facts.NO_STOP
    changes: dict[str, Any] = {"left_at": now, **over}
    if node.liveness == Liveness.OFFLINE:
        facts.write(node, when=Q(), now=now, **changes)
    else:
        changes |= {"liveness_changed_at": now, "liveness_reason": "the worker stopped"}
        move(node, Liveness.OFFLINE, **changes, **facts.edited(now))
    worker = events.by_worker(node)
    removed = replicas.lose(
        NodeModel.objects.filter(node=node), reason="Its worker left.", now=now, by=worker
    )
    events.record(
        "node.left",
        actor=worker,
        now=now,
        node=node,
        before={"liveness": before},
        after={"liveness": node.liveness, "replicas_removed": len(removed)},
    )


def _become(node: BackendNode, to: Liveness, *, kind: str, reason: str, now: datetime) -> None:
    before = node.liveness
    changed = {"liveness_changed_at": now, "liveness_reason": reason[:255]}
    move(node, to, **changed, **facts.edited(now))
    events.record(
        kind,
        actor=events.SYSTEM,
        now=now,
        node=node,
        reason=reason,
        before={"liveness": before},
        after={"liveness": to},
    )
