"""The cluster in a handful of numbers; two statements, however many nodes."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

from nodes.models import BackendNode, ClusterEvent, ClusterState
from nodes.states import Liveness, NodeStatus, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the first page and a monitoring script want to know."""

    nodes: dict[str, int]
    holding_since: datetime | None
    holding_reason: str
    attention: int
    bytes: dict[str, int]

    @property
    def total(self) -> int:
        """Everything that is not retired."""
        return sum(count for status, count in self.nodes.items() if status != NodeStatus.RETIRED)


SUMMED = (
    *("total_vram", "available_vram", "reserved_vram"),
    *("total_ram", "available_ram", "total_disk", "available_disk"),
)


def cluster() -> Cluster:
    facts = BackendNode.objects.aggregate(**_counts(), **_sums())
    state = ClusterState.objects.first()
    urgent = ClusterEvent.objects.filter(severity=Severity.ATTENTION, acknowledged_at=None)
    return Cluster(
        nodes={status.value: facts[status.value] for status in NodeStatus},
        holding_since=state.holding_since if state else None,
        holding_reason=state.holding_reason if state else "",
        attention=urgent.count(),
        bytes={name: int(facts[f"sum_{name}"] or 0) for name in SUMMED},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Nobody is being declared offline, and why."""

    since: datetime
    reason: str


def holding() -> Holding | None:
    """For the banner on every page about nodes; one primary-key read."""
    state = ClusterState.objects.filter(holding_since__isnull=False).first()
    if state is None or state.holding_since is None:
        return None
    return Holding(since=state.holding_since, reason=state.holding_reason)


def _counts() -> dict[str, Count]:
    """states.status_of as conditions, strongest first, each excluding those before it."""
    present = Q(retired_at=None)
    working = present & Q(approved_at__isnull=False)
    conditions = {
        NodeStatus.RETIRED: Q(retired_at__isnull=False),
        NodeStatus.PENDING: present & Q(approved_at=None),
        NodeStatus.DRAINING: working & Q(drain_requested_at__isnull=False),
        **{
            NodeStatus(liveness.value): working & Q(drain_requested_at=None, liveness=liveness)
            for liveness in Liveness
        },
    }
    return {status.value: Count("pk", filter=rule) for status, rule in conditions.items()}


def _sums() -> dict[str, Sum]:
    """Capacity of what is there and let in."""
    there = Q(retired_at=None, approved_at__isnull=False) & ~Q(liveness=Liveness.OFFLINE)
    return {f"sum_{name}": Sum(name, filter=there) for name in SUMMED}
