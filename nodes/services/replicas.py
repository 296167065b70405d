"""Replica rows: the only door out, and the way back into service."""

from datetime import datetime

from django.db import transaction

from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce, events
from nodes.states import ReplicaState

SERVED = {ReplicaState.LOADED, ReplicaState.UNLOADING}


@transaction.atomic
def remove(rows: NodeModelQuerySet, *, reason: str) -> list[NodeModel]:
    """Forget replicas. The only way a replica row dies, so nobody misses the announcement.

    Rows are locked in id order: two removals that overlap wait instead of deadlocking.
    """
    doomed = list(rows.order_by("id").select_for_update(of=("self",)))
    NodeModel.objects.filter(pk__in=[replica.pk for replica in doomed]).delete()
    for replica in doomed:
        announce.replica_removed(replica, reason=reason)
    return doomed


@transaction.atomic
def lose(
    rows: NodeModelQuerySet, *, reason: str, now: datetime, by: str = events.SYSTEM
) -> list[NodeModel]:
    """Forget replicas that went without anybody having asked: others may have to stand in."""
    lost = write_off(rows, reason=reason, now=now, by=by)
    if lost:
        announce.service_lost()
    return lost


@transaction.atomic
def write_off(
    rows: NodeModelQuerySet, *, reason: str, now: datetime, by: str = events.SYSTEM
) -> list[NodeModel]:
    """Forget them and leave events; whether they are replaced at once, the caller decides."""
    lost = remove(rows.select_related("node"), reason=reason)
    # What was still coming up had a load job, which tells its own end
    served = [row for row in lost if row.state in SERVED]
    if served:
        events.record_all(_loss(row, reason=reason, now=now, by=by) for row in served)
    return lost


@transaction.atomic
def restore(node: BackendNode, *, now: datetime) -> None:
    """Let what a drain withdrew take requests again; what it stopped stays stopped.

    All of the node's are locked: a registration goes on with the others, perhaps of lower ids.
    """
    held = NodeModel.objects.filter(node=node).locked()
    withdrawn = NodeModel.objects.filter(pk__in=held, withdrawn_at__isnull=False)
    withdrawn.update(withdrawn_at=None, updated_at=now)


def _loss(replica: NodeModel, *, reason: str, now: datetime, by: str) -> ClusterEvent:
    return events.build(
        "replica.lost",
        actor=by,
        now=now,
        node=replica.node,
        subject=replica.process_key,
        reason=reason,
        before={"state": replica.state, "in_flight": replica.in_flight},
    )
