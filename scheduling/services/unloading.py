"""Unloading: a durable order to stop exactly one process; its slot stays taken until it is gone."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from clustermgr.lib.errors import BusError, Conflict, InvalidInput, NodeRefused, NodeUnreachable
from clustermgr.lib.queue import after_commit
from nodes import backendrpc
from nodes.gateway import NodeGateway
from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce, events, lifecycle, replicas
from nodes.states import Liveness, ReplicaState
from nodes.wire import loopback
from scheduling import backoff
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import ringing

log = logging.getLogger(__name__)

LEASE = timedelta(minutes=2)  # a stop takes up to 25 s, a look before it 10
UNCONFIRMED = "The worker did not confirm that the process is gone."
BY_KEY = "The worker is too old to confirm a stop; it was told to, and is looked at again."
FRESH = {"cleanup_error": "", "cleanup_attempts": 0}


@transaction.atomic
def unload_now(replica: NodeModel, *, by: str, now: datetime, force: bool = False) -> NodeModel:
    """Have a loaded replica stopped; refused while it answers requests, unless by `force`."""
    rows = NodeModel.objects.filter(pk=replica.pk, state=ReplicaState.LOADED)
    idle = rows if force else rows.filter(in_flight=0)
    if not idle.update(
        state=ReplicaState.UNLOADING, cleanup_next_retry_at=now, updated_at=now, **FRESH
    ):
        raise Conflict(_why_not(replica))
    replica.refresh_from_db()
    events.record(
        "replica.unload_requested",
        actor=by,
        now=now,
        node=replica.node,
        subject=replica.process_key,
        after={"requests_cut_off": replica.in_flight},
    )
    after_commit("scheduling.stop_replica", str(replica.pk))
    return replica


def stop(replica_id: UUID, *, gateway: NodeGateway, clock: Callable[[], datetime]) -> bool:
    """Stop the process of a replica that is being unloaded; True when it is gone, and its row."""
    replica = _take(replica_id, now=clock())
    if replica is None:
        return False
    connection.close()
    try:
        error = _stop(replica, gateway=gateway)
    except NodeUnreachable as absent:
        error = _not_heard(replica, str(absent), gateway=gateway, now=clock())
    except (BusError, NodeRefused, InvalidInput) as fault:
        error = str(fault)
    if error:
        _try_later(replica, error, now=clock())
        return False
    return _gone(replica, now=clock())


def due(*, now: datetime) -> list[UUID]:
    """Replicas to be stopped that nobody is at; those of offline nodes wait for the node."""
    rows = _due(now).exclude(node__liveness=Liveness.OFFLINE)
    return list(rows.order_by("cleanup_next_retry_at", "pk").values_list("pk", flat=True))


def _due(now: datetime) -> NodeModelQuerySet:
    ready = Q(cleanup_next_retry_at=None) | Q(cleanup_next_retry_at__lte=now)
    return NodeModel.objects.filter(ready, state=ReplicaState.UNLOADING)


def _take(replica_id: UUID, *, now: datetime) -> NodeModel | None:
    """Two bells for one stop: exactly one takes it; should it die, it is due after the lease."""
    if not _due(now).filter(pk=replica_id).update(cleanup_next_retry_at=now + LEASE):
        return None
    return NodeModel.objects.select_related("node").filter(pk=replica_id).first()


def _stop(replica: NodeModel, *, gateway: NodeGateway) -> str:
    """What went wrong; nothing when the process is certainly gone."""
    address = replica.address or find(replica, gateway=gateway)
    if not address:
        return ""
    answer = gateway.stop_model(
        replica.node_id,
        model_name=replica.model_name,
        replica_index=replica.replica_index,
        address=address,
        config_revision=replica.config_revision,
    )
    if answer.terminated:
        return ""
    # Its key runs at another address by now: ours is gone, and that one is a stray. What is being
    # stopped is not listed at all.
    found = find(replica, gateway=gateway)
    if found and loopback(found) != loopback(address):
        return ""
    return answer.error or UNCONFIRMED


def find(slot: NodeModel | LoadJob, *, gateway: NodeGateway) -> str:
    """Where the worker runs a process for this slot; nothing: it does not."""
    key = (slot.model_name, slot.replica_index)
    running = gateway.running_models(slot.node_id)
    found = [one.address for one in running if (one.model_id, one.replica_index) == key]
    return found[0] if found else ""


def _not_heard(replica: NodeModel, absent: str, *, gateway: NodeGateway, now: datetime) -> str:
    """Nobody heard the stop: the worker is away, or older than exact stops; what went wrong.

    An older one is healthy. It is told to stop that key, which it does not confirm: the slot stays
    taken until the process is seen to be gone.
    """
    try:
        if not gateway.listens(replica.node_id):
            lifecycle.mark_unreachable(replica.node_id, now=now, reason=absent)
            return absent
        gateway.stop_backend(replica.node_id, backend=replica.process_key)
        return "" if _seen_gone(replica, gateway=gateway) else BY_KEY
    except (BusError, NodeRefused) as fault:
        return str(fault)


def _seen_gone(replica: NodeModel, *, gateway: NodeGateway) -> bool:
    if replica.address:
        return backendrpc.refuses(replica.address)
    try:
        return not find(replica, gateway=gateway)
    except NodeUnreachable:
        return True  # it does not tell; but nothing was loaded into what never had an address


def _gone(replica: NodeModel, *, now: datetime) -> bool:
    """Remove exactly the row that was stopped; whatever took its place meanwhile stays."""
    with transaction.atomic():
        same = NodeModel.objects.filter(
            pk=replica.pk,
            node=replica.node_id,
            model_name=replica.model_name,
            replica_index=replica.replica_index,
            address=replica.address,
            config_revision=replica.config_revision,
            state=ReplicaState.UNLOADING,
        )
        held = list(same.select_for_update(of=("self",)).values_list("pk", flat=True))
        LoadJob.objects.filter(replica__in=held).update(freed_at=now)
        removed = replicas.remove(same, reason="unloaded")
        for row in removed:
            announce.capacity_changed(row.node_id)
            _look_again(row)
            subject = row.process_key
            events.record(
                "replica.unloaded",
                actor=events.SYSTEM,
                now=now,
                node=replica.node,
                subject=subject,
            )
    return bool(removed)


def _look_again(row: NodeModel) -> None:
    """Where there was no room beside it, the new revision waits for this place, or the minimum."""
    edited = Q(rolling_since__isnull=False) | ~Q(config_revision=row.config_revision)
    models = ModelLoadInfo.objects.filter(edited, pk=row.model_name)
    rules = ModelSchedulingConfig.objects.filter(model_name=row.model_name, min_replicas__gt=0)
    if models.exists() or rules.exists():
        ringing.reconcile_soon()


def _try_later(replica: NodeModel, error: str, *, now: datetime) -> None:
    attempts = replica.cleanup_attempts + 1
    pause = backoff.delay(attempts, first=backoff.STOP)
    rows = NodeModel.objects.filter(pk=replica.pk, state=ReplicaState.UNLOADING)
    rows.update(
        cleanup_attempts=attempts, cleanup_error=error[:240], cleanup_next_retry_at=now + pause
    )
    log.info("stop not confirmed", extra={"replica": str(replica), "reason": error})


def _why_not(replica: NodeModel) -> str:
    current = NodeModel.objects.filter(pk=replica.pk).first()
    if current is None:
        return f"{replica.process_key} is gone already."
    if current.state != ReplicaState.LOADED:
        return f"{replica.process_key} is {current.state}; only a loaded replica can be unloaded."
    count = current.in_flight
    requests = "1 request is" if count == 1 else f"{count} requests are"
    return f"{requests} running on {replica.process_key}; wait for them, or unload by force."
