"""The words an order can be described with, and how they may change. Read first.

An `Operation` is what somebody asked for; each of its *ops* is one node's share: the durable
intent and the row that the operator watches are the same row. Only ops have a stored state; an
operation's is computed from theirs.
"""

from collections.abc import Mapping

from django.db.models import TextChoices

from clustermgr.lib.machine import Moves


class Verb(TextChoices):
    INSTALL = "install"
    UPGRADE = "upgrade"  # only where it is installed; stops its processes
    REINSTALL = "reinstall"  # downloads again, whatever is there
    DELETE = "delete"
    STOP = "stop"  # its processes; the files stay


class OpState(TextChoices):
    QUEUED = "queued"  # waits for its node, its turn, or its time
    RUNNING = "running"  # a process of ours holds its lease and talks to the node
    UNCONFIRMED = "unconfirmed"  # sent, and not known how it ended: the node's inventory will tell
    FAILED = "failed"  # will be tried again
    CANCELLING = "cancelling"  # the node was told, or cannot be: its result will be recorded
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # failed too often; waits for an operator
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # a later order took its place


OP_MOVES: Moves = {
    OpState.QUEUED: frozenset({OpState.RUNNING, OpState.CANCELLED, OpState.SUPERSEDED}),
    OpState.RUNNING: frozenset(
        {
            OpState.QUEUED,  # its process died before anything was sent
            OpState.UNCONFIRMED,
            OpState.FAILED,
            OpState.CANCELLING,
            OpState.SUCCEEDED,
            OpState.DEAD,
        }
    ),
    OpState.UNCONFIRMED: frozenset(
        {OpState.SUCCEEDED, OpState.FAILED, OpState.DEAD, OpState.CANCELLING}
    ),
    OpState.FAILED: frozenset(
        {OpState.QUEUED, OpState.RUNNING, OpState.CANCELLED, OpState.SUPERSEDED}
    ),
    OpState.CANCELLING: frozenset({OpState.CANCELLED}),
    OpState.SUCCEEDED: frozenset(),
    OpState.DEAD: frozenset({OpState.QUEUED, OpState.CANCELLED, OpState.SUPERSEDED}),
    OpState.CANCELLED: frozenset(),
    OpState.SUPERSEDED: frozenset(),
}

# At most one of these for each (node, backend); each has a lease or a time at which it goes on
OUTSTANDING = (
    OpState.QUEUED,
    OpState.RUNNING,
    OpState.UNCONFIRMED,
    OpState.FAILED,
    OpState.CANCELLING,
)
WAITING = (OpState.QUEUED, OpState.FAILED)  # for their turn; nobody talks to the node
ATTENTION = (OpState.FAILED, OpState.DEAD)


class OperationState(TextChoices):
    """What people and the API see of an operation; computed, never stored."""

    QUEUED = "queued"
    RUNNING = "running"
    UNCONFIRMED = "unconfirmed"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"  # on some nodes only; others failed
    PARTLY_CANCELLED = "partly_cancelled"  # done but where it was cancelled; nothing failed
    FAILED = "failed"
    CANCELLED = "cancelled"


def operation_state(counts: Mapping[OpState, int]) -> OperationState:
    """Name an operation by its ops: what is under way first, then how it ended."""
    some = {state for state, count in counts.items() if count}
    under_way = _under_way(some)
    if under_way:
        return under_way
    bad = some & {OpState.FAILED, OpState.DEAD}
    if OpState.SUCCEEDED not in some:
        return OperationState.FAILED if bad else OperationState.CANCELLED
    if bad:
        return OperationState.PARTIAL
    curtailed = OpState.CANCELLED in some
    return OperationState.PARTLY_CANCELLED if curtailed else OperationState.SUCCEEDED


def _under_way(some: set[OpState]) -> OperationState | None:
    if OpState.RUNNING in some:
        return OperationState.RUNNING
    if OpState.QUEUED in some:
        alone = some <= {OpState.QUEUED, OpState.SUPERSEDED, OpState.CANCELLED}
        return OperationState.QUEUED if alone else OperationState.RUNNING
    if OpState.CANCELLING in some:
        return OperationState.CANCELLING
    return OperationState.UNCONFIRMED if OpState.UNCONFIRMED in some else None
