"""Processes that belong to no replica: taken in where we know what they are, else stopped.

They come from admins' installs, from rows that were forgotten too early, and from loads that were
cancelled while their worker was starting a process. They hold memory that nobody accounts for.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet

from clustermgr.lib.errors import BusError, InvalidInput, NodeRefused, WorkerTokenUnknown
from clustermgr.lib.queue import after_commit
from nodes import backendrpc
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.services import bearers, events
from nodes.states import ReplicaState
from nodes.wire import RunningModel, loopback
from scheduling.models import LoadJob, ModelLoadInfo, StrayProcess
from scheduling.services import jobs
from scheduling.states import JobState

LEASE = timedelta(minutes=2)
Told = Mapping[UUID, Sequence[RunningModel]]  # by those that answered
Slot = tuple[UUID, str, int]  # node, model, index


def note(told: Told, *, owned: Collection[Slot], asked_at: datetime) -> None:
    """Remember what belongs to nobody, forget what is gone, ring for what was there too long."""
    unknown = {
        (node, one.model_id, one.replica_index, one.address)
        for node, running in told.items()
        for one in running
        if (node, one.model_id, one.replica_index) not in owned and _writable(one)
    }
    known = {
        (one.node_id, one.model_name, one.replica_index, one.address): one.pk
        for one in StrayProcess.objects.all()
    }
    gone = [pk for key, pk in known.items() if key[0] in told and key not in unknown]
    if gone or unknown:
        _remember(sorted(unknown - known.keys()), gone=gone, asked_at=asked_at)


@transaction.atomic
def _remember(
    fresh: Sequence[tuple[UUID, str, int, str]], *, gone: Sequence[int], asked_at: datetime
) -> None:
    StrayProcess.objects.filter(pk__in=gone).delete()
    StrayProcess.objects.bulk_create(
        [
            StrayProcess(
                node_id=node,
                model_name=name,
                replica_index=index,
                address=address,
                first_seen_at=asked_at,
            )
            for node, name, index, address in fresh
        ],
        ignore_conflicts=True,
    )
    for stray_id in _due(asked_at).values_list("pk", flat=True):
        after_commit("scheduling.settle_stray", stray_id)


def settle(stray_id: int, *, gateway: NodeGateway, clock: Callable[[], datetime]) -> None:
    """Take it in if it is certainly what we would load there, else stop exactly it."""
    stray = _take(stray_id, now=clock())
    if stray is None:
        return
    if _adopt(stray, now=clock()):
        StrayProcess.objects.filter(pk=stray.pk).delete()
        return
    connection.close()
    try:
        answer = gateway.stop_model(
            stray.node_id,
            model_name=stray.model_name,
            replica_index=stray.replica_index,
            address=stray.address,
        )
        error = "" if answer.terminated else answer.error or "The worker did not confirm it."
    except (BusError, NodeRefused, InvalidInput) as fault:
        error = str(fault)
    _write_down(stray, error, now=clock())


def _writable(process: RunningModel) -> bool:
    """A worker may say anything; what no column takes cannot be stopped by it either."""
    words = process.model_id + process.address
    named = 0 < len(process.model_id) <= 255 and 0 < len(process.address) <= 512
    return named and words.isprintable()


def _due(now: datetime) -> QuerySet[StrayProcess]:
    free = Q(retry_at=None) | Q(retry_at__lte=now)
    return StrayProcess.objects.filter(free, first_seen_at__lte=now - settings.CLUSTER.stray_grace)


def _take(stray_id: int, *, now: datetime) -> StrayProcess | None:
    """Not if a replica came for it meanwhile: then it is not a stray any more."""
    if not _due(now).filter(pk=stray_id).update(retry_at=now + LEASE):
        return None
    stray = StrayProcess.objects.select_related("node__join_token").filter(pk=stray_id).first()
    if stray is None:
        return None
    slot = NodeModel.objects.filter(
        node=stray.node_id, model_name=stray.model_name, replica_index=stray.replica_index
    )
    return None if slot.exists() else stray


def _adopt(stray: StrayProcess, *, now: datetime) -> bool:
    """Only a process that our last job for that slot loaded, as its model is defined today."""
    job = _loaded_by(stray)
    if job is None or not BackendNode.objects.routable().filter(pk=stray.node_id).exists():
        return False
    try:
        token = bearers.of(stray.node)
    except WorkerTokenUnknown:
        return False
    connection.close()
    if not backendrpc.has_model(job.address, token=token):
        return False
    return _insert(stray, job, now=now)


def _loaded_by(stray: StrayProcess) -> LoadJob | None:
    """A worker starts nothing by itself: the slot's last job made this process, if it is there."""
    made = LoadJob.objects.filter(
        node=stray.node_id, model_name=stray.model_name, replica_index=stray.replica_index
    )
    job = made.order_by("-id").first()
    if job is None or job.state != JobState.LOADED or not job.address:
        return None
    same = loopback(job.address) == loopback(stray.address)
    return job if same and _as_defined(job).exists() else None


def _as_defined(job: LoadJob) -> QuerySet[ModelLoadInfo]:
    """Its model, if that is still what the job loaded."""
    return ModelLoadInfo.objects.filter(
        pk=job.model_name, config_revision=job.config_revision, backend=job.backend
    )


@transaction.atomic
def _insert(stray: StrayProcess, job: LoadJob, *, now: datetime) -> bool:
    """Not if its model was edited while the process was asked; no edit until we are done."""
    if _as_defined(job).select_for_update(no_key=True).first() is None:
        return False
    options = backendrpc.model_options(job.options, model=job.model_name)
    packed = options.SerializeToString(deterministic=True)
    try:
        with transaction.atomic():
            replica = NodeModel.objects.create(
                node=stray.node,
                model_name=stray.model_name,
                replica_index=stray.replica_index,
                address=job.address,
                state=ReplicaState.LOADED,
                backend_type=job.backend,
                config_revision=job.config_revision,
                model_options=packed,
                effective_options_hash=jobs.digest(packed),
                last_used=now,
                last_confirmed_at=now,
                created_at=now,
                updated_at=now,
            )
    except IntegrityError:  # somebody took the slot: his job finds the process, and ends it
        return False
    events.record(
        "replica.adopted",
        actor=events.SYSTEM,
        now=now,
        node=stray.node,
        subject=replica.process_key,
    )
    return True


@transaction.atomic
def _write_down(stray: StrayProcess, error: str, *, now: datetime) -> None:
    if error:
        StrayProcess.objects.filter(pk=stray.pk).update(last_error=error[:4000])
        return
    StrayProcess.objects.filter(pk=stray.pk).delete()
    events.record(
        "process.stopped",
        actor=events.SYSTEM,
        now=now,
        node=stray.node,
        subject=f"{stray.model_name}#{stray.replica_index}",
        reason="It belonged to no replica.",
    )
