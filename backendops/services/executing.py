"""Carries out one op: claim, ask the node outside any transaction, look, write."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypedDict

from django.conf import settings
from django.db import connection
from django.db.models import Q

from backendops import backoff, verifying
from backendops.models import GalleryBackend, PendingBackendOp
from backendops.services import inventory, settling
from backendops.services.desk import Desk
from backendops.states import OpState, Verb
from clustermgr.lib.errors import (
    BusError,
    Interrupted,
    InvalidInput,
    NodeRefused,
    NodeRestarted,
    NodeUnreachable,
    NodeVanished,
    NotConnected,
)
from nodes import wire
from nodes.gateway import NodeGateway
from nodes.models import NodeModel
from nodes.outcomes import RefusedAfterStopping
from nodes.services import lifecycle, replicas

Clock = Callable[[], datetime]

REPLACES = (Verb.UPGRADE, Verb.REINSTALL)
AGAIN_AFTER = timedelta(seconds=5)  # when the fault was ours


def apply(op_id: int, fence: int, *, gateway: NodeGateway, desk: Desk, clock: Clock) -> bool:
    """Carry out the op that was claimed under `fence`; False when somebody else was first."""
    op = _take(op_id, fence, by=desk.name, now=clock())
    if op is None:
        return False
    sent_before = op.sent_at
    with desk.holding(op):
        try:
            _carry_out(op, gateway=gateway, desk=desk, clock=clock)
        except BusError as fault:
            _not_answered(op, fault, sent_before=sent_before, now=clock())
        except NodeRefused as refusal:
            _refused(op, refusal, gateway=gateway, clock=clock)
        except InvalidInput as nonsense:
            settling.failed(op, str(nonsense), now=clock(), for_good=True)
    return True


def _not_answered(
    op: PendingBackendOp, fault: BusError, *, sent_before: datetime | None, now: datetime
) -> None:
    """Each kind of silence means something else."""
    soon = now + AGAIN_AFTER
    match fault:
        case NotConnected():
            settling.put_back(op, str(fault), now=now, due_at=soon, sent_at=sent_before)
        case Interrupted():
            let_go(op, now=now)
        case NodeUnreachable() if inventory.is_newcomer(op.node, now=now):
            words = f"{op.node.name} was only just let in and does not listen yet."
            settling.put_back(op, words, now=now, due_at=soon, sent_at=sent_before)
        case NodeRestarted():  # it is back already, and what it was at died with it
            settling.failed(op, str(fault), now=now)
        case NodeUnreachable() | NodeVanished():
            lifecycle.mark_unreachable(op.node_id, now=now, reason=str(fault))
            settling.failed(op, str(fault), now=now)
        case _:
            settling.unconfirmed(op, "No answer yet; the node may still be at it.", now=now)


def let_go(op: PendingBackendOp, *, now: datetime) -> None:
    """Our process ends, or has ended, and the node's answer with it: somebody goes on.

    Asking again is harmless where nothing was sent, for an install, and for a worker that
    remembers the op by its id (ours do, and they are the ones with a boot id).
    """
    if op.sent_at is None or op.verb == Verb.INSTALL or op.node.boot_id:
        words = "Our process ended; going on."
        settling.put_back(op, words, now=now, due_at=now, sent_at=op.sent_at)
    else:
        settling.unconfirmed(op, "Our process ended before the node had answered.", now=now)


def names_of(op: PendingBackendOp) -> set[str]:
    """Every name that the node may list it by: its own, its alias, the builds it stands for."""
    names = {op.backend, op.name or op.backend, op.alias or op.backend}
    entries = GalleryBackend.objects.filter(Q(name__in=names) | Q(alias__in=names))
    for entry in entries:
        names |= {entry.name, *entry.capabilities.values()}
    return names


def _take(op_id: int, fence: int, *, by: str, now: datetime) -> PendingBackendOp | None:
    """Two deliveries of one doorbell: exactly one takes the claim."""
    rows = PendingBackendOp.objects.filter(
        pk=op_id, fence=fence, state=OpState.RUNNING, claimed_by=""
    )
    if not rows.update(claimed_by=by, lease_until=now + settings.CLUSTER.op_lease):
        return None
    return PendingBackendOp.objects.select_related("node").get(pk=op_id)


def _carry_out(op: PendingBackendOp, *, gateway: NodeGateway, desk: Desk, clock: Clock) -> None:
    asked_before = op.sent_at is not None
    if op.verb in REPLACES and not _look_before(op, gateway=gateway, clock=clock):
        return
    if not _mark_sent(op, now=clock()):
        settling.cancelled(op, "The node was never told.", now=clock())
        return
    connection.close()  # never hold one over a wait: two hundred of us would
    note = _ask(op, gateway=gateway, desk=desk, clock=clock)
    if asked_before:
        note = note or "Asked again after our process had ended."
    _verify(op, gateway=gateway, clock=clock, note=note)


def _look_before(op: PendingBackendOp, *, gateway: NodeGateway, clock: Clock) -> bool:
    """Note what is there now, so that the change can be seen; False when there is nothing to do."""
    connection.close()
    backends = gateway.list_backends(op.node_id)
    inventory.store(op.node_id, backends, now=clock())
    there = verifying.find(names_of(op), backends)
    if op.sent_at is not None and op.before:
        seen = verifying.verdict(Verb(op.verb), op.backend, before=op.before, there=there)
        if seen.done:
            settling.succeeded(op, now=clock(), note="The node had done it already.", there=there)
            return False
        return True
    if there is None and op.verb == Verb.UPGRADE:
        words = f"{op.node.name} does not have {op.backend}; there is nothing to upgrade."
        settling.failed(op, words, now=clock(), for_good=True)
        return False
    op.before = verifying.evidence(there)
    return True


def _mark_sent(op: PendingBackendOp, *, now: datetime) -> bool:
    """From here on the node may be at it; False when it was cancelled before."""
    op.sent_at = op.sent_at or now
    op.give_up_at = now + settings.CLUSTER.install_timeout * 2
    rows = PendingBackendOp.objects.filter(pk=op.pk, fence=op.fence, state=OpState.RUNNING)
    told = {"sent_at": op.sent_at, "before": op.before, "give_up_at": op.give_up_at}
    return bool(rows.update(**told))


def _ask(op: PendingBackendOp, *, gateway: NodeGateway, desk: Desk, clock: Clock) -> str:
    """Ask the node and wait; what is worth a note comes back."""
    match op.verb:
        case Verb.DELETE:
            done = gateway.delete(
                op.node_id, backend=op.backend, restarted=lifecycle.restart_of(op.node)
            )
            _forget(op, done.stopped, now=clock())
            return ""
        case Verb.STOP:
            return _stop(op, gateway=gateway, clock=clock)
    return _fetch(op, gateway=gateway, desk=desk, clock=clock)


class _Source(TypedDict):
    backend: str
    uri: str
    name: str
    alias: str
    galleries: list[wire.Gallery]
    op_id: str
    restarted: Callable[[], bool] | None


def _fetch(op: PendingBackendOp, *, gateway: NodeGateway, desk: Desk, clock: Clock) -> str:
    source = _Source(
        backend=op.backend,
        uri=op.uri,
        name=op.name,
        alias=op.alias,
        galleries=[wire.Gallery(name=g["name"], url=g["url"]) for g in op.galleries],
        op_id=op.wire_id,
        restarted=lifecycle.restart_of(op.node),
    )

    def hear(tick: wire.InstallProgress) -> None:
        desk.tell(op.pk, tick)

    if op.verb != Verb.UPGRADE:
        force = op.verb == Verb.REINSTALL
        gateway.install(op.node_id, **source, force=force, on_progress=hear)
        return ""
    done = gateway.upgrade(op.node_id, **source, on_progress=hear)
    _forget(op, done.stopped, now=clock())
    return "The worker is old: it was told to install by force." if done.fell_back else ""


def _stop(op: PendingBackendOp, *, gateway: NodeGateway, clock: Clock) -> str:
    """Stop each process of the backend exactly, and hear that it is gone."""
    rows = NodeModel.objects.filter(node=op.node_id, backend_type=op.backend)
    ours = set(rows.values_list("model_name", "replica_index"))
    connection.close()
    stopped = []
    for process in gateway.running_models(op.node_id):
        if process.model_id != op.backend and (process.model_id, process.replica_index) not in ours:
            continue
        answer = gateway.stop_model(
            op.node_id,
            model_name=process.model_id,
            replica_index=process.replica_index,
            address=process.address,
        )
        if not answer.terminated:
            raise NodeRefused(answer.error or f"{process.model_id} did not stop.")
        stopped.append(
            wire.ProcessKey(model_id=process.model_id, replica_index=process.replica_index)
        )
    _forget(op, tuple(stopped), now=clock())
    if not stopped:
        return "Nothing was running."
    return f"{len(stopped)} process{'es' if len(stopped) > 1 else ''} stopped."


def _forget(op: PendingBackendOp, stopped: tuple[wire.ProcessKey, ...], *, now: datetime) -> None:
    """Exactly the processes that were stopped are gone; their ports may serve others soon."""
    for key in stopped:
        rows = NodeModel.objects.filter(
            node=op.node_id, model_name=key.model_id, replica_index=key.replica_index
        )
        replicas.lose(rows, reason=f"The {op.verb} of {op.backend} stopped it.", now=now)


def _refused(
    op: PendingBackendOp, refusal: NodeRefused, *, gateway: NodeGateway, clock: Clock
) -> None:
    """The node said no; only a delete may be done all the same (it was gone already)."""
    if isinstance(refusal, RefusedAfterStopping):
        _forget(op, refusal.stopped, now=clock())
    if op.verb == Verb.DELETE:
        told = inventory.ask([op.node_id], gateway=gateway, now=clock())[op.node_id]
        if isinstance(told, tuple) and verifying.find(names_of(op), told) is None:
            settling.succeeded(op, now=clock(), note="It was not there any more.")
            return
    words = str(refusal)
    settling.failed(op, words, now=clock(), for_good=not backoff.can_pass(words))


def _verify(op: PendingBackendOp, *, gateway: NodeGateway, clock: Clock, note: str) -> None:
    """The node said yes; believe it when its inventory agrees."""
    if op.verb == Verb.STOP:
        settling.succeeded(op, now=clock(), note=note)
        return
    told = inventory.ask([op.node_id], gateway=gateway, now=clock())[op.node_id]
    if isinstance(told, BusError | NodeRefused):
        words = f"The node said it was done, and then not what it has: {told}"
        settling.unconfirmed(op, words, now=clock())
        return
    there = verifying.find(names_of(op), told)
    seen = verifying.verdict(Verb(op.verb), op.backend, before=op.before, there=there)
    if seen.done:
        settling.succeeded(op, now=clock(), note=note, there=there)
    else:
        settling.failed(op, f"The node said it was done, but {seen.words}", now=clock())
