"""What callers say of a replica that failed them: exactly that one goes, or rests for a while."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import TextChoices

from clustermgr.lib.errors import NotFound
from clustermgr.lib.queue import after_commit
from nodes.models import NodeModel
from nodes.services import events
from nodes.states import ReplicaState, Severity
from scheduling.services import leasing, ringing, unloading


class Complaint(TextChoices):
    NOT_LOADED = "model_not_loaded"  # the process is there, and has no model
    MISMATCH = "identity_mismatch"  # the process serves another model: its port was reused
    UNREACHABLE = "unreachable"  # nobody answers at its address
    OVERLOADED = "overloaded"  # it answers that it cannot


# Its process is of no use: it is stopped, exactly, and its row goes with it
USELESS = frozenset({Complaint.NOT_LOADED, Complaint.MISMATCH})
# Rests, and longer with each complaint that follows soon
RESTS = {
    Complaint.UNREACHABLE: timedelta(seconds=10),
    Complaint.OVERLOADED: timedelta(seconds=3),
}
AT_MOST = timedelta(minutes=5)
FORGIVEN_AFTER = timedelta(minutes=5)  # without a complaint
DETAIL = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Whom the complaint was about, and what became of it."""

    model: str
    replica: UUID
    done: str


@transaction.atomic
def hear(lease_id: UUID, complaint: Complaint, *, by: str, detail: str, now: datetime) -> Heard:
    """Believe the holder of a lease. It ends; no other replica is touched."""
    rows = NodeModel.objects.filter(leases=lease_id).select_related("node")
    replica = rows.select_for_update(of=("self",), no_key=True).first()
    if replica is None:
        raise NotFound("There is no such lease; it was released, or has expired.")
    leasing.release([lease_id])
    useless = complaint in USELESS
    done = _stop(replica, now=now) if useless else _rest(replica, complaint, now=now)
    if done:
        events.record(
            "replica.useless" if useless else "replica.ejected",
            actor=by,
            now=now,
            node=replica.node,
            subject=replica.process_key,
            reason=f"{complaint.label}: {detail[:DETAIL]}" if detail else complaint.label,
            severity=Severity.ATTENTION,
        )
    return Heard(model=replica.model_name, replica=replica.pk, done=done or "was known already")


def rest(ejections: int, *, first: timedelta) -> timedelta:
    """How long a replica rests after that many complaints in a row."""
    doublings: int = 2 ** min(ejections - 1, 10)
    return min(first * doublings, AT_MOST)


def _stop(replica: NodeModel, *, now: datetime) -> str:
    serving = NodeModel.objects.filter(pk=replica.pk, state=ReplicaState.LOADED)
    stopping = {"state": ReplicaState.UNLOADING, "cleanup_next_retry_at": now, "updated_at": now}
    if not serving.update(**stopping, **unloading.FRESH):
        return ""
    after_commit("scheduling.stop_replica", str(replica.pk))
    ringing.reconcile_soon()
    return "is being stopped"


def _rest(replica: NodeModel, complaint: Complaint, *, now: datetime) -> str:
    until = replica.ejected_until
    if until is not None and until > now:
        return ""  # others said so before
    forgiven = until is None or now - until > FORGIVEN_AFTER
    ejections = 1 if forgiven else replica.ejections + 1
    pause = rest(ejections, first=RESTS[complaint])
    NodeModel.objects.filter(pk=replica.pk).update(ejected_until=now + pause, ejections=ejections)
    if complaint == Complaint.UNREACHABLE:
        # Its worker knows whether the process is still there; no other need be asked
        after_commit("scheduling.look_at_node", str(replica.node_id))
    return f"rests for {pause.total_seconds():.0f} s"
