"""Where a waiting op stands on its node, and behind what."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from backendops.models import PendingBackendOp
from backendops.states import OUTSTANDING, OpState

IN_LINE = tuple(state for state in OUTSTANDING if state != OpState.FAILED)
MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    position: int  # 1: the next one, or at work
    behind: str  # what comes before it, in words


def places(ops: Iterable[PendingBackendOp]) -> dict[int, Place]:
    """For each queued one of `ops`; one query, whatever their number."""
    queued = [op for op in ops if op.state == OpState.QUEUED]
    lines: dict[UUID, list[PendingBackendOp]] = defaultdict(list)
    nodes = {op.node_id for op in queued}
    if nodes:
        rows = PendingBackendOp.objects.filter(node__in=nodes, state__in=IN_LINE)
        for other in rows.only("id", "node_id", "verb", "backend", "state").order_by("id"):
            lines[other.node_id].append(other)
    return {op.pk: _place(op, lines[op.node_id]) for op in queued}


def _place(op: PendingBackendOp, line: list[PendingBackendOp]) -> Place:
    ahead = [other for other in line if other.state != OpState.QUEUED or other.pk < op.pk]
    named = ", ".join(f"{other.verb} of {other.backend}" for other in ahead[:MOST_NAMED])
    more = f" and {len(ahead) - MOST_NAMED} more" if len(ahead) > MOST_NAMED else ""
    return Place(position=len(ahead) + 1, behind=named + more)
