"""Replicas nobody wants any more: the rows say so, a worker is told later and until it answers."""

from datetime import datetime

from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.states import REPLICA_MOVES, ReplicaState
from scheduling.models import LoadJob
from scheduling.states import JobState

STOPPABLE = [state for state, to in REPLICA_MOVES.items() if ReplicaState.UNLOADING in to]


def stop_all(replicas: NodeModelQuerySet, *, by: str, now: datetime) -> int:
    """Unload these, and give up loading them; call it in the transaction that decides it."""
    ids = list(replicas.order_by("id").select_for_update(of=("self",)).values_list("id", flat=True))
    LoadJob.objects.active().filter(replica__in=ids).update(
        state=JobState.CANCELLED, finished_at=now, changed_at=now, last_error=f"stopped by {by}"
    )
    rows = NodeModel.objects.filter(pk__in=ids, state__in=STOPPABLE)
    return rows.update(
        state=ReplicaState.UNLOADING,
        updated_at=now,
        cleanup_error="",
        cleanup_attempts=0,
        cleanup_next_retry_at=now,
    )
