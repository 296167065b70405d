"""Carries out one load: claim, have a process, have it load, publish; the waits hold no row."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection

from clustermgr.lib.errors import (
    BusError,
    DomainError,
    Interrupted,
    NodeRefused,
    NodeRestarted,
    NodeSilent,
    NodeUnreachable,
    NodeVanished,
    NotConnected,
    WorkerTokenUnknown,
)
from nodes import backendrpc, wire
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.services import bearers, lifecycle
from nodes.states import ReplicaState
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import jobs, unloading
from scheduling.services.desk import Claim, Desk

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]

AGAIN_AFTER = timedelta(seconds=5)
STOPPING = "is stopping"  # all workers' words: what was in the slot has not gone quite yet
NEWCOMER_FOR = timedelta(minutes=2)  # a worker listens a moment after it was let in
GIB = 2**30


class ClaimLost(Exception):
    """Somebody else decides about this job now."""


class AddressTaken(DomainError):
    """A worker gave another node's address as its own."""

    code = "address_taken"
    http_status = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What a load works with."""

    gateway: NodeGateway
    desk: Desk
    clock: Clock


def run(job_id: int, *, hands: Hands) -> bool:
    """Bring one replica up; False when the job was not ours to take."""
    job = jobs.claim(job_id, by=hands.desk.name, now=hands.clock())
    if job is None:
        return False
    with hands.desk.holding(job) as claim:
        try:
            _carry_out(job, claim=claim, hands=hands)
        except ClaimLost:
            why = "Its replica was removed meanwhile: the worker left, or was sent away."
            jobs.fail(job, why, now=hands.clock(), process=False, blame=False)
        except BusError as fault:
            _not_answered(job, fault, now=hands.clock())
        except DomainError as refusal:
            _failed(job, refusal, hands=hands)
    return True


def cancel_install(node_id: UUID, *, op_id: str, gateway: NodeGateway) -> None:
    """Spare the node a download that nobody waits for.

    A kindness: who does not hear it, as LocalAI's workers never do, finishes and is stopped.
    """
    try:
        gateway.cancel(node_id, op_id=op_id)
    except (BusError, NodeRefused) as fault:
        log.info("install not called off", extra={"node": str(node_id), "reason": str(fault)})


def load_within(size_bytes: int | None) -> timedelta:
    """How long a backend may load: reading a large file takes its time."""
    cluster = settings.CLUSTER
    wanted = cluster.load_within + cluster.load_within_per_gib * (int(size_bytes or 0) / GIB)
    return min(wanted, cluster.load_within_at_most)


def _carry_out(job: LoadJob, *, claim: Claim, hands: Hands) -> None:
    now = hands.clock()
    if not _still_wanted(job):
        why = "The model was edited, or its node taken, before it was loaded."
        jobs.give_up(job, why, now=now, process=_maybe_started(job))
        return
    if job.deadline_at is not None and job.deadline_at <= now:
        why = f"Not done in time. {job.last_error}".strip()
        jobs.fail(job, why, now=now, process=_maybe_started(job))
        return
    options = backendrpc.model_options(job.options, model=job.model_name)
    token = bearers.of(job.node)
    within = load_within(_size(job))
    connection.close()
    if not _empty_slot(job, gateway=hands.gateway):
        why = f"{job.node.name} runs an older process there and does not know how to stop just it."
        jobs.fail(job, why, now=hands.clock(), process=True, blame=False)
        return
    address = _have_process(job, claim=claim, hands=hands)
    _ours(jobs.stage(job, address=address, now=hands.clock()))
    packed = options.SerializeToString(deterministic=True)
    _ours(jobs.begin_loading(job, options=packed, within=within, now=hands.clock()))
    connection.close()
    backendrpc.load(address, options, token=token, within=within, abandoned=claim.lost.is_set)
    if not jobs.publish(job, now=hands.clock()):
        why = "The model was edited while it was being loaded."
        if jobs.give_up(job, why, now=hands.clock(), process=True):
            _stop_now(job, hands=hands)


def _maybe_started(job: LoadJob) -> bool:
    """Whether an earlier claim may have left a process behind."""
    return job.fence > 1


def _still_wanted(job: LoadJob) -> bool:
    models = ModelLoadInfo.objects.filter(pk=job.model_name, config_revision=job.config_revision)
    return job.replica_id is not None and _takes_work(job.node) and models.exists()


def _takes_work(node: BackendNode) -> bool:
    gone = (node.retired_at, node.drain_requested_at, node.left_at)
    return node.approved_at is not None and all(fact is None for fact in gone)


def _size(job: LoadJob) -> int | None:
    sizes = ModelLoadInfo.objects.filter(pk=job.model_name).values_list("size_bytes", flat=True)
    known = sizes.first()
    return None if known is None else int(known)


def _empty_slot(job: LoadJob, *, gateway: NodeGateway) -> bool:
    """Nothing is loaded twice: what is in the slot goes, and the load begins with a new process.

    A dead owner of ours may have asked it to load, and nobody knows how far it is. Or its row was
    forgotten with a node that fell silent, and it lived on. Its Status would not tell: LocalAI's
    Go backends say "ready" whatever they have. False: the worker is too old for exact stops, which
    takes the patience of an unload.
    """
    address = _in_the_way(job, gateway=gateway)
    if not address:
        return True
    try:
        answer = gateway.stop_model(
            job.node_id,
            model_name=job.model_name,
            replica_index=job.replica_index,
            address=address,
            force=True,
        )
    except NodeUnreachable:
        if not gateway.listens(job.node_id):
            raise
        return False
    if not answer.terminated:
        raise NodeSilent(answer.error or "The process that was there did not stop yet.")
    return True


def _in_the_way(job: LoadJob, *, gateway: NodeGateway) -> str:
    """Where a process is that somebody may have loaded into already; nothing: there is none.

    One that an earlier claim of this job has staged is new.
    """
    row = job.replica
    loading = row.address if row and row.state == ReplicaState.LOADING else ""
    try:
        listed = unloading.find(job, gateway=gateway)
    except (NodeUnreachable, NodeRefused):  # older workers do not tell; a slow one is asked again
        return loading
    staged = job.address and not loading
    if listed and staged and wire.loopback(listed) == wire.loopback(job.address):
        return ""
    return listed or loading


def _have_process(job: LoadJob, *, claim: Claim, hands: Hands) -> str:
    connection.close()  # never hold one over a wait: two hundred of us would
    sources = settings.CLUSTER.backend_galleries
    try:
        installed = hands.gateway.install(
            job.node_id,
            backend=job.backend,
            model_id=job.model_name,
            replica_index=job.replica_index,
            galleries=[wire.Gallery(name=source.name, url=source.url) for source in sources],
            op_id=jobs.op_id(job),
            restarted=lifecycle.restart_of(job.node),
            on_progress=claim.tell,
        )
    finally:
        hands.desk.flush(claim)
    job.address = installed.address or job.node.address
    wire.loopback(job.address)  # what cannot be stopped by its address is not loaded into either
    _check_nobody_elses(job)
    return job.address


def _check_nobody_elses(job: LoadJob) -> None:
    """Another machine's process would lose what it serves to our load.

    A machine that is offline has none; its address may be somebody else's by now.
    """
    others = BackendNode.objects.online().exclude(pk=job.node_id)
    there = NodeModel.objects.filter(address=job.address, node__in=others)
    taken = there.select_related("node").first()
    if taken is not None:
        who = f"{taken.model_name}#{taken.replica_index} on {taken.node.name}"
        raise AddressTaken(
            f"{job.node.name} says that its process is at {job.address}, where {who} is."
        )


def _ours(still: bool) -> None:
    if not still:
        raise ClaimLost


def _not_answered(job: LoadJob, fault: BusError, *, now: datetime) -> None:
    """Each kind of silence means something else."""
    match fault:
        case NotConnected():
            jobs.put_back(job, str(fault), now=now, due_at=now + AGAIN_AFTER)
        case Interrupted():
            jobs.put_back(job, str(fault), now=now, due_at=now)
        case NodeUnreachable() if _is_newcomer(job.node, now=now):
            words = f"{job.node.name} was only just let in and does not listen yet."
            jobs.put_back(job, words, now=now, due_at=now + AGAIN_AFTER)
        case NodeRestarted():  # it is back already, and the process it was starting is gone
            jobs.fail(job, str(fault), now=now, process=False, blame=False)
        case NodeUnreachable() | NodeVanished():
            lifecycle.mark_unreachable(job.node_id, now=now, reason=str(fault))
            # Who died took its processes along; who cannot be reached may run an earlier claim's
            left = isinstance(fault, NodeUnreachable) and _maybe_started(job)
            jobs.fail(job, str(fault), now=now, process=left, blame=False)
        case _:  # silent: it may still be at it, and nothing is lost by asking again
            jobs.put_back(job, str(fault), now=now, due_at=now + AGAIN_AFTER)


def _is_newcomer(node: BackendNode, *, now: datetime) -> bool:
    return node.approved_at is not None and now - node.approved_at <= NEWCOMER_FOR


def _failed(job: LoadJob, refusal: DomainError, *, hands: Hands) -> None:
    """The backend or the worker said no; what was started for it goes."""
    if isinstance(refusal, NodeRefused) and str(refusal).endswith(STOPPING):
        now = hands.clock()
        jobs.put_back(job, str(refusal), now=now, due_at=now + AGAIN_AFTER)
        return
    started = bool(job.address) or _maybe_started(job)
    blame = not isinstance(refusal, WorkerTokenUnknown)  # no other model would load there either
    failed = jobs.fail(job, str(refusal), now=hands.clock(), process=started, blame=blame)
    if failed and started:
        _stop_now(job, hands=hands)


def _stop_now(job: LoadJob, *, hands: Hands) -> None:
    if job.replica_id is not None:
        unloading.stop(job.replica_id, gateway=hands.gateway, clock=hands.clock)
