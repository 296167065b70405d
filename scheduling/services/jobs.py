"""How a load job is claimed, goes on and ends; each step only under the claim it was taken for.

Locks are taken in the order of nodes.services.facts, a model's before them and a job's after:
model, node, replica, job.
"""

import hashlib
import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce, Greatest

from clustermgr.lib.queue import after_commit
from clustermgr.lib.text import sentence
from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce, events, facts, replicas
from nodes.states import ReplicaState, Severity
from scheduling import backoff
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.querysets import LoadJobQuerySet
from scheduling.services import reserving, ringing
from scheduling.states import ACTIVE, HELD, JOB_MOVES, JobState

log = logging.getLogger(__name__)

SAID = 500  # of a reason, where a list or a caller is told; the job keeps all of it
STALL = timedelta(minutes=5)  # more than a step should take
UNTOLD = {
    "phase": "",
    "percentage": 0.0,
    "current_bytes": 0,
    "total_bytes": 0,
    "last_error": "",  # of an earlier try: it stood in the way, and does no more
}
COMING_UP = (ReplicaState.STAGING, ReplicaState.LOADING)


@transaction.atomic
def claim(job_id: int, *, by: str, now: datetime) -> LoadJob | None:
    """Take a job that is due; None when it is not, or somebody has it, or enough are under way."""
    if LoadJob.objects.filter(state__in=HELD).count() >= settings.CLUSTER.loads_at_once:
        return None
    rows = LoadJob.objects.due(now).filter(pk=job_id)
    cluster = settings.CLUSTER
    patience = cluster.install_timeout + cluster.load_within + STALL
    taken = rows.update(
        state=JobState.INSTALLING,
        fence=F("fence") + 1,
        lease_until=now + cluster.load_lease,
        claimed_by=by,
        due_at=None,
        started_at=Coalesce("started_at", now),
        deadline_at=Coalesce("deadline_at", now + patience),
        changed_at=now,
    )
    if not taken:
        return None
    return LoadJob.objects.select_related("node", "replica").get(pk=job_id)


@transaction.atomic
def stage(job: LoadJob, *, address: str, now: datetime) -> bool:
    """There is a process; its files are looked after. False: not ours any more."""
    if not _go_on(job, JobState.STAGING, now=now, address=address):
        return False
    known = {"address": address, "backend_type": job.backend, "updated_at": now}
    return bool(_coming_up(job).update(**known))


@transaction.atomic
def begin_loading(job: LoadJob, *, options: bytes, within: timedelta, now: datetime) -> bool:
    """From here on the backend may be loading. False: not ours any more."""
    later = Greatest(F("deadline_at"), Value(now + within + STALL))
    if not _go_on(job, JobState.LOADING, now=now, deadline_at=later):
        return False
    return bool(
        _coming_up(job).update(
            state=ReplicaState.LOADING,
            model_options=options,
            effective_options_hash=digest(options),
            updated_at=now,
        )
    )


@transaction.atomic
def publish(job: LoadJob, *, now: datetime) -> bool:
    """The replica serves from here on, unless its model was edited meanwhile."""
    models = ModelLoadInfo.objects.filter(pk=job.model_name, config_revision=job.config_revision)
    current = models.select_for_update(no_key=True).first()  # no edit until we are done
    held = _hold(job)
    if current is None or held is None or held.state != JobState.LOADING:
        return False
    published = _coming_up(job).update(
        state=ReplicaState.LOADED,
        in_flight=0,
        last_used=now,
        last_confirmed_at=now,
        misses=0,
        suspect_since=None,
        updated_at=now,
    )
    if not published:
        return False
    _make_way(held, current, now=now)
    models.update(failures=0, retry_at=None, last_error="")
    _write_end(held, JobState.LOADED, now=now, percentage=100.0, last_error="")
    _remember("replica.loaded", job, now=now)
    return True


def _make_way(job: LoadJob, model: ModelLoadInfo, *, now: datetime) -> None:
    """This one serves: what moved here gets no new requests, what is old may be retired."""
    if job.replaces_id is not None:
        moved = NodeModel.objects.filter(pk=job.replaces_id, state=ReplicaState.LOADED)
        moved.filter(withdrawn_at=None).update(withdrawn_at=now, updated_at=now)
    if model.rolling_since is not None:
        ringing.reconcile_soon()


def digest(options: bytes) -> str:
    """By which two replicas are seen to be loaded alike."""
    return hashlib.sha256(options).hexdigest()


def fail(job: LoadJob, why: str, *, now: datetime, process: bool, blame: bool = True) -> bool:
    """It did not come up. `process`: one may run for it, and has to be stopped.

    `blame` the model, so that it is not tried again at once; not where the node was at fault.
    """
    return _end(job, JobState.FAILED, why, now=now, process=process, blame=blame)


def give_up(job: LoadJob, why: str, *, now: datetime, process: bool) -> bool:
    """Nobody wants what we are at; `process` as for `fail`."""
    return _end(job, JobState.CANCELLED, why, now=now, process=process)


@transaction.atomic
def cancel(job: LoadJob, why: str, *, now: datetime, by: str = events.SYSTEM) -> bool:
    """Nobody wants it any more, whoever is at it: he finds his claim lost."""
    held = _hold_any(job)
    if held is None:
        return False
    if held.state == JobState.INSTALLING:
        after_commit("scheduling.cancel_install", str(held.node_id), op_id(held))
    return _end(held, JobState.CANCELLED, why, now=now, process=True, by=by)


def op_id(job: LoadJob) -> str:
    """What a claim's install is called on the worker.

    It repeats its answer to an id it knows; after a stop, that process is gone: hence the fence.
    """
    return f"load-{job.pk}-{job.fence}"


@transaction.atomic
def put_back(job: LoadJob, why: str, *, now: datetime, due_at: datetime) -> bool:
    """Nothing is lost and asking again is harmless: due again."""
    return _put_back(LoadJob.objects.filter(pk=job.pk), job, why, now=now, due_at=due_at)


@transaction.atomic
def take_over(job: LoadJob, *, now: datetime) -> bool:
    """Have another process go on, unless whoever is at it gave a sign of life after all."""
    why = "The process that was at it is gone; another goes on."
    lapsed = LoadJob.objects.abandoned(now).filter(pk=job.pk)
    return _put_back(lapsed, job, why, now=now, due_at=now)


def _put_back(
    rows: LoadJobQuerySet, job: LoadJob, why: str, *, now: datetime, due_at: datetime
) -> bool:
    rows = rows.filter(fence=job.fence, state__in=HELD)
    told = {"lease_until": None, "claimed_by": "", "changed_at": now, "last_error": why[:4000]}
    return bool(rows.update(state=JobState.PENDING, due_at=due_at, **told))


@transaction.atomic
def _end(
    job: LoadJob,
    to: JobState,
    why: str,
    *,
    now: datetime,
    process: bool,
    blame: bool = False,
    by: str = events.SYSTEM,
) -> bool:
    models = ModelLoadInfo.objects.select_for_update(no_key=True)
    failing = models.filter(pk=job.model_name).first() if blame else None
    held = _hold(job, states=ACTIVE)
    if held is None:
        log.debug("too late to end a job", extra={"job": job.pk, "fence": job.fence})
        return False
    if process and held.started_at is not None:
        _stop_later(job, now=now)
    else:
        replicas.remove(_coming_up(job), reason=why)
    _write_end(held, to, now=now, last_error=why[:4000])
    reserving.end([job.pk], now=now)
    if failing and failing.config_revision == job.config_revision:
        _back_off(failing, f"{job.node.name}: {why}", now=now)
    severity = Severity.ATTENTION if to == JobState.FAILED else Severity.INFO
    kind = "replica.load_failed" if to == JobState.FAILED else "replica.load_cancelled"
    _remember(kind, job, now=now, reason=why, severity=severity, by=by)
    return True


def _go_on(job: LoadJob, to: JobState, *, now: datetime, **told: Any) -> bool:
    """Into the next phase, which begins at nothing: a finished download is no progress of it."""
    held = _hold(job)
    if held is None or to not in JOB_MOVES[held.state]:
        return False
    return bool(
        LoadJob.objects.filter(pk=job.pk).update(state=to, changed_at=now, **UNTOLD, **told)
    )


def _hold(job: LoadJob, *, states: tuple[JobState, ...] = HELD) -> LoadJob | None:
    """Lock the node, the replica and the job; None when the claim is no longer this one."""
    held = _hold_any(job, states=states)
    return held if held and held.fence == job.fence else None


def _hold_any(job: LoadJob, *, states: tuple[JobState, ...] = ACTIVE) -> LoadJob | None:
    list(facts.lockable().filter(pk=job.node_id).values_list("pk"))
    rows = NodeModel.objects.filter(Q(load_job=job.pk) | Q(pk=job.replaces_id)).order_by("pk")
    list(rows.select_for_update(no_key=True, of=("self",)).values_list("pk"))
    jobs = LoadJob.objects.select_for_update(no_key=True, of=("self",))
    return jobs.filter(pk=job.pk, state__in=states).first()


def _coming_up(job: LoadJob) -> NodeModelQuerySet:
    return NodeModel.objects.filter(load_job=job.pk, state__in=COMING_UP)


def _stop_later(job: LoadJob, *, now: datetime) -> None:
    """Its slot stays taken until the worker says that the process is gone."""
    ids = list(_coming_up(job).values_list("pk", flat=True))
    NodeModel.objects.filter(pk__in=ids).update(
        state=ReplicaState.UNLOADING,
        cleanup_error="",
        cleanup_attempts=0,
        cleanup_next_retry_at=now,
        updated_at=now,
    )
    for replica_id in ids:
        announce.replica_unloading(replica_id)


def _write_end(job: LoadJob, to: JobState, *, now: datetime, **told: Any) -> None:
    ended = {"state": to, "finished_at": now, "changed_at": now, "due_at": None}
    LoadJob.objects.filter(pk=job.pk).update(lease_until=None, **ended, **told)


def _back_off(model: ModelLoadInfo, why: str, *, now: datetime) -> None:
    failures = model.failures + 1
    pause = backoff.delay(failures, first=backoff.LOAD)
    ModelLoadInfo.objects.filter(pk=model.pk).update(
        failures=failures, retry_at=now + pause, last_error=sentence(why, limit=SAID)
    )


def _remember(
    kind: str,
    job: LoadJob,
    *,
    now: datetime,
    reason: str = "",
    severity: Severity = Severity.INFO,
    by: str = events.SYSTEM,
) -> None:
    events.record(
        kind,
        actor=by,
        now=now,
        node=job.node,
        subject=f"{job.model_name}#{job.replica_index}",
        reason=reason,
        severity=severity,
        after={"job": job.pk, "model": job.model_name, "node": job.node.name, "cause": job.cause},
    )
