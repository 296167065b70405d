"""Nothing stays stuck: jobs of dead processes go on, and what nobody works on any more ends."""

import logging
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from clustermgr.lib.queue import after_commit
from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.querysets import LoadJobQuerySet
from scheduling.services import jobs, moving, reserving, unloading
from scheduling.states import ACTIVE, HELD, JobState

log = logging.getLogger(__name__)

MOST = 500  # bells in one round


def reap(*, now: datetime) -> int:
    """Set right whatever is stuck, and ring for what is due; the number set right."""
    found = _take_over(now=now) + _end_pointless(now=now) + _stop_orphans(now=now)
    reserving.end_reported(now=now)
    found += reserving.mend()
    moving.finish(now=now)
    send_out(now=now)
    if found:
        log.info("stuck loads set right", extra={"found": found})
    return found


def wedged(*, now: datetime) -> tuple[LoadJobQuerySet, NodeModelQuerySet]:
    """What must not exist: active jobs without lease or due time, rows coming up without a job."""
    neither = Q(state=JobState.PENDING, due_at=None) | Q(state__in=HELD, lease_until=None)
    return LoadJob.objects.filter(neither), orphans()


def orphans() -> NodeModelQuerySet:
    """Rows that take a slot for a load that nobody carries out (D-12)."""
    working = LoadJob.objects.filter(replica=OuterRef("pk"), state__in=ACTIVE)
    coming = NodeModel.objects.filter(state__in=(ReplicaState.STAGING, ReplicaState.LOADING))
    return coming.filter(~Exists(working))


def _take_over(*, now: datetime) -> int:
    found = LoadJob.objects.abandoned(now).order_by("pk")
    return sum(jobs.take_over(job, now=now) for job in found)


def _end_pointless(*, now: datetime) -> int:
    """Jobs whose row was removed with the node's others, and those of nodes being emptied."""
    ended = 0
    for job in LoadJob.objects.active().filter(replica=None).select_related("node"):
        why = f"{job.node.name} lost its replicas: the worker left, restarted or was sent away."
        ended += jobs.cancel(job, why, now=now)
    draining = LoadJob.objects.active().filter(node__drain_requested_at__isnull=False)
    for job in draining.select_related("node"):
        ended += jobs.cancel(job, f"{job.node.name} is being drained.", now=now)
    return ended


@transaction.atomic
def _stop_orphans(*, now: datetime) -> int:
    """A process may run for such a row: it is stopped before the slot is free."""
    rows = orphans().order_by("pk").select_for_update(no_key=True, skip_locked=True, of=("self",))
    ids = [row.pk for row in rows]
    found = NodeModel.objects.filter(pk__in=ids).update(
        state=ReplicaState.UNLOADING,
        cleanup_next_retry_at=now,
        updated_at=now,
        **unloading.FRESH,
    )
    for replica_id in ids:
        announce.replica_unloading(replica_id)
    return found


@transaction.atomic
def send_out(*, now: datetime) -> None:
    """Ring for what is due, as far as there is room for it.

    A bell that was lost costs a round; one too many finds nothing to do.
    """
    busy = LoadJob.objects.filter(state__in=HELD).count()
    room = min(max(settings.CLUSTER.loads_at_once - busy, 0), MOST)
    for job_id in LoadJob.objects.due(now).order_by("due_at", "pk").values_list("pk")[:room]:
        after_commit("scheduling.run_job", *job_id)
    for replica_id in unloading.due(now=now)[:MOST]:
        after_commit("scheduling.stop_replica", str(replica_id))
