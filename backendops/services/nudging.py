"""Do it now: what would be tried or looked at later by itself."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from backendops.models import NodeInventory, PendingBackendOp
from backendops.services import changes
from backendops.states import OpState
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.queue import after_commit
from nodes.services import events

FRESH_FOR = timedelta(minutes=1)  # an inventory: nothing is asked twice in a minute
UNCLEAR = (OpState.UNCONFIRMED, OpState.CANCELLING)


@transaction.atomic
def try_now(op: PendingBackendOp, *, by: str, now: datetime) -> None:
    """Let a failed op run at once, with a clean slate."""
    failed = PendingBackendOp.objects.filter(pk=op.pk, state=OpState.FAILED)
    if not failed.exists() or not changes.requeue([op.pk], now=now):
        raise InvalidMove(f"{_name(op)} is not waiting for another try.")
    _remember("op.nudged", op, by=by, now=now)
    after_commit("backendops.dispatch")


@transaction.atomic
def check_now(op: PendingBackendOp, *, by: str, now: datetime) -> None:
    """Look at the node at once instead of at the next check."""
    rows = PendingBackendOp.objects.filter(pk=op.pk, state__in=UNCLEAR)
    if not rows.update(due_at=now, changed_at=now, change=changes.NEXT_CHANGE):
        raise InvalidMove(f"{_name(op)} is settled; there is nothing to check.")
    _remember("op.checked", op, by=by, now=now)
    look_at(op.node_id)


def node_is_back(node_id: UUID, *, now: datetime) -> None:
    """A node came in, came back or changed: what waits for it is due, what it has may be new.

    A thousand may come at once: nobody rings where there is nothing to do.
    """
    if PendingBackendOp.objects.waiting().filter(node=node_id).exists():
        after_commit("backendops.dispatch")
    # Who was never heard is asked by the next reap, together with all other newcomers
    if NodeInventory.objects.filter(node=node_id, observed_at__lte=now - FRESH_FOR).exists():
        look_at(node_id)


def look_at(node_id: UUID) -> None:
    """Ask a node what it has, soon: only a question, so nothing is written down."""
    after_commit("backendops.look_at_node", str(node_id))


def _name(op: PendingBackendOp) -> str:
    return f"{op.verb} of {op.backend} on {op.node.name}"


def _remember(kind: str, op: PendingBackendOp, *, by: str, now: datetime) -> None:
    told = {"verb": op.verb, "backend": op.backend, "op": op.pk}
    events.record(kind, actor=by, now=now, node=op.node, after=told)
