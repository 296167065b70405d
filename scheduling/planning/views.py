"""What a decision knows: rows as the database has them, without the database.

Nodes and replicas are named tuples and keep the columns' own form: a tick reads thousands, and
a frozen dataclass takes ten times as long to make.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from nodes.builds import Offer
from nodes.states import Liveness, NodeType, ReplicaState
from nodes.taints import Taint
from scheduling.states import ACTIVE, JobState, Strategy

NOTHING: Mapping[str, str] = MappingProxyType({})
HOPELESS = 3  # unsuccessful stops after which nobody waits for the room any more


class NodeView(NamedTuple):
    """One machine that is not retired."""

    id: UUID
    name: str
    node_type: str = NodeType.BACKEND
    approved_at: datetime | None = None
    liveness: str = Liveness.HEALTHY
    drain_requested_at: datetime | None = None
    cordoned_at: datetime | None = None
    quarantined_until: datetime | None = None
    slots: int = 1
    total_vram: int = 0
    available_vram: int = 0
    vram_budget: int = 0  # in bytes; 0: none
    total_disk: int = 0  # 0: unknown
    available_disk: int = 0
    total_ram: int = 0  # 0: unknown
    available_ram: int = 0
    capability: str = ""  # which builds of a backend it can run
    labels: Mapping[str, str] = NOTHING
    taints: tuple[Taint, ...] = ()

    @property
    def reachable(self) -> bool:
        """What it has runs, as far as anybody knows."""
        return self.approved_at is not None and self.liveness == Liveness.HEALTHY

    @property
    def routable(self) -> bool:
        """What it has may serve; BackendNodeQuerySet.routable in Python."""
        return self.reachable and self.drain_requested_at is None


class ReplicaView(NamedTuple):
    """One slot that is taken, whatever its state."""

    id: UUID
    node: UUID
    model: str
    slot: int
    state: str = ReplicaState.LOADED
    in_flight: int = 0
    used: float = 0.0  # when last, or when made; in seconds: a date takes longer to read than a row
    revision: str = ""
    suspect_since: datetime | None = None
    outdated_at: datetime | None = None
    withdrawn_at: datetime | None = None
    cleanup_attempts: int = 0

    @property
    def key(self) -> str:
        return f"{self.model}#{self.slot}"

    @property
    def leaving(self) -> bool:
        """Being stopped, and its memory is likely to come back soon."""
        return self.state == ReplicaState.UNLOADING and self.cleanup_attempts < HOPELESS


class JobView(NamedTuple):
    """One load that is under way, or whose memory the node does not report yet: taken, or freed."""

    id: int
    node: UUID
    model: str
    slot: int
    revision: str = ""
    state: str = JobState.PENDING
    reserved_vram: int = 0
    reservation_ended_at: datetime | None = None
    replaces: UUID | None = None  # the replica that goes when this one has come: a move
    freed_at: datetime | None = None

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """How many replicas are wanted, and where."""

    selector: str = ""
    tolerations: object = ()  # as stored: read by wishes.py, which may refuse it
    min_replicas: int = 0
    max_replicas: int = 0
    spread_all: bool = False
    pinned: bool = False
    priority: int = 0
    strategy: str = Strategy.SPREAD
    unsatisfiable_since: datetime | None = None
    unsatisfiable_until: datetime | None = None
    unsatisfiable_reason: str = ""
    seen: str = ""  # which writing of the row this is: what follows from it is void after the next
    capacity: int = 0  # how often capacity had changed when this was read

    @property
    def managed(self) -> bool:
        return bool(self.min_replicas or self.max_replicas or self.spread_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A definition, a rule, or both. Without a revision there is nothing to load."""

    name: str
    revision: str = ""
    backend: str = ""
    size_bytes: int | None = None
    vram_bytes: int | None = None
    group: str = ""
    failures: int = 0
    retry_at: datetime | None = None
    last_error: str = ""
    rolling: int = 0  # so many serve at any moment while old replicas are replaced; 0: none are
    failed_on: Collection[UUID] | None = None  # where loads failed lately, if none succeeded since
    rule: RuleView | None = None

    @property
    def defined(self) -> bool:
        return bool(self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything a plan is made from."""

    nodes: tuple[NodeView, ...] = ()
    models: tuple[ModelView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    pressed: frozenset[str] = frozenset()  # models whose warm replicas were too busy lately
    # Backends that not every node can run
    offers: Mapping[str, Offer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What an operator may turn, see ClusterSettings."""

    idle_after: timedelta = timedelta(minutes=5)
    starved_after: timedelta = timedelta(seconds=90)
    starved_pause: timedelta = timedelta(minutes=5)
    # A worker that registered again is asked at once what it runs; until it has answered its
    # replicas serve nobody, and replacing them all would be worse than waiting
    doubt_for: timedelta = timedelta(minutes=1)
