"""Replicas whose worker registered again without saying who it is: ask before believing."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from clustermgr.lib.errors import BusError, NodeRefused, NodeUnreachable
from clustermgr.lib.queue import after_commit
from nodes.models import BackendNode, NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import lifecycle, replicas
from nodes.states import Liveness, ReplicaState
from nodes.wire import RunningModel

Ask = Callable[[UUID], Sequence[RunningModel]]

# The first question goes out with the registration; this long after it, the sweep asks again.
RETRY_AFTER = timedelta(seconds=30)


@transaction.atomic
def suspect(node: BackendNode, *, now: datetime) -> None:
    """Stop routing to what the node served, and ask the worker whether it still does.

    Only loaded replicas: a staging, loading or unloading one belongs to somebody who is
    talking to the worker about it right now, and who will hear that it is gone.
    """
    rows = NodeModel.objects.filter(node=node, state=ReplicaState.LOADED)
    ids = list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
    if ids:
        # Always the latest date: an answer to an earlier question proves nothing any more.
        NodeModel.objects.filter(pk__in=ids).update(suspect_since=now)
        after_commit("nodes.confirm_replicas", str(node.pk))


def confirm(node_id: UUID, *, ask: Ask, now: datetime) -> bool:
    """Ask the worker and settle its suspect replicas; False when there was no answer.

    Silence is not an empty list: without an answer the rows stay suspect. No transaction is
    open while we wait.
    """
    if not _suspects(node_id, now).exists():
        return True
    try:
        running = ask(node_id)
    except NodeUnreachable as absent:
        lifecycle.mark_unreachable(node_id, now=now, reason=str(absent))
        return False
    except (BusError, NodeRefused):
        return False
    settle(node_id, running=running, asked_at=now)
    return True


@transaction.atomic
def settle(node_id: UUID, *, running: Sequence[RunningModel], asked_at: datetime) -> None:
    """Believe in the suspects that run, forget those that do not."""
    alive = {(process.model_id, process.replica_index) for process in running}
    rows = _suspects(node_id, asked_at).order_by("pk").select_for_update(no_key=True)
    seen = {row.pk: (row.model_name, row.replica_index) in alive for row in rows}
    confirmed = [pk for pk, runs in seen.items() if runs]
    missing = [pk for pk, runs in seen.items() if not runs]
    NodeModel.objects.filter(pk__in=confirmed).update(
        suspect_since=None, last_confirmed_at=asked_at, misses=0, updated_at=asked_at
    )
    replicas.lose(
        NodeModel.objects.filter(pk__in=missing),
        reason="It did not run any more when its worker registered again.",
        now=asked_at,
    )


@transaction.atomic
def ask_again(*, now: datetime) -> None:
    """Queue the question anew for every node that has not answered it."""
    for node_id in suspects_due(now=now):
        after_commit("nodes.confirm_replicas", str(node_id))


def suspects_due(*, now: datetime) -> list[UUID]:
    """Nodes to be asked again: they were suspected a while ago and nobody has answered yet."""
    rows = NodeModel.objects.suspect_since_before(now - RETRY_AFTER)
    reachable = rows.exclude(node__liveness=Liveness.OFFLINE)
    return list(reachable.order_by("node_id").values_list("node_id", flat=True).distinct())


def _suspects(node_id: UUID, asked_at: datetime) -> NodeModelQuerySet:
    return NodeModel.objects.suspect_since_before(asked_at).filter(node=node_id)
