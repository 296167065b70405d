"""The second half of a move: the new replica serves, so the old one goes."""

from datetime import datetime

from clustermgr.lib.errors import Conflict
from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import unloading
from scheduling.states import JobState

MOST = 100  # in one round


def finish(*, now: datetime) -> int:
    """Unload what was moved away, once nobody waits for an answer of it; says how many."""
    arrived = LoadJob.objects.filter(
        state=JobState.LOADED, replaces__state=ReplicaState.LOADED
    ).select_related("replaces__node")
    return sum(_let_go(job, now=now) for job in arrived.order_by("id")[:MOST])


def _let_go(job: LoadJob, *, now: datetime) -> bool:
    old = job.replaces
    assert old is not None
    # Again: it was withdrawn when the new one came, and a drain that was called off restores all
    NodeModel.objects.filter(pk=old.pk, withdrawn_at=None).update(withdrawn_at=now, updated_at=now)
    try:
        unloading.unload_now(old, by=job.requested_by, now=now)
    except Conflict:
        return False
    return True
