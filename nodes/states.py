"""The words a node and a replica can be described with, and how they may change. Read first.

A node's *status* is not stored. Four facts are, each with its own owner, and the status that
pages and the wire show is computed from them:

    approved_at   an operator let it in            no path to work leads around it
    retired_at    an operator sent it away         nothing but readmission undoes it
    drain_*       an operator (or the worker's own shutdown) wants it empty
    liveness      what we last heard of it         the only one that the worker's life moves
"""

from dataclasses import dataclass

from django.db.models import TextChoices

from clustermgr.lib.machine import Moves


class NodeType(TextChoices):
    BACKEND = "backend"  # runs models
    AGENT = "agent"  # runs agents; takes no backend commands


class Liveness(TextChoices):
    HEALTHY = "healthy"  # beats, and was reachable when last asked
    UNHEALTHY = "unhealthy"  # beats, but nobody answered a command
    OFFLINE = "offline"  # silent for too long, or left by itself


LIVENESS_MOVES: Moves = {
    Liveness.HEALTHY: frozenset({Liveness.UNHEALTHY, Liveness.OFFLINE}),
    Liveness.UNHEALTHY: frozenset({Liveness.HEALTHY, Liveness.OFFLINE}),
    Liveness.OFFLINE: frozenset({Liveness.HEALTHY}),
}


class NodeStatus(TextChoices):
    """What people and the wire see; computed, never stored."""

    PENDING = "pending"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OFFLINE = "offline"
    DRAINING = "draining"
    RETIRED = "retired"  # ours; LocalAI deletes instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The four facts, without their dates."""

    approved: bool
    retired: bool
    draining: bool
    liveness: Liveness


def status_of(facts: Facts) -> NodeStatus:
    """Name the strongest fact: gone, not let in, being emptied, then how alive it is."""
    if facts.retired:
        return NodeStatus.RETIRED
    if not facts.approved:
        return NodeStatus.PENDING
    if facts.draining:
        return NodeStatus.DRAINING
    return NodeStatus(facts.liveness)


class ReplicaState(TextChoices):
    STAGING = "staging"  # slot taken, files on their way
    LOADING = "loading"  # the backend was asked to load
    LOADED = "loaded"  # serves
    UNLOADING = "unloading"  # being stopped; its slot stays taken until the worker says so


REPLICA_MOVES: Moves = {
    ReplicaState.STAGING: frozenset({ReplicaState.LOADING, ReplicaState.UNLOADING}),
    ReplicaState.LOADING: frozenset({ReplicaState.LOADED, ReplicaState.UNLOADING}),
    ReplicaState.LOADED: frozenset({ReplicaState.UNLOADING}),
    ReplicaState.UNLOADING: frozenset(),
}


class LabelSource(TextChoices):
    """Who owns a label; each owner edits its own."""

    ADMIN = "admin"
    WORKER = "worker"
    TOKEN = "token"
    AUTO = "auto"


# An operator's word stands over the worker's, the worker's over what we guess.
LABEL_PRECEDENCE = (LabelSource.ADMIN, LabelSource.TOKEN, LabelSource.WORKER, LabelSource.AUTO)


class TaintEffect(TextChoices):
    NO_SCHEDULE = "NoSchedule"  # nothing new lands here unless it tolerates the taint
    PREFER_NO_SCHEDULE = "PreferNoSchedule"  # only when nothing else fits


class Severity(TextChoices):
    INFO = "info"
    ATTENTION = "attention"  # listed until somebody acknowledges it
