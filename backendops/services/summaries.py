"""Operations as pages and the API show them; two queries, however many there are."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from backendops import progress
from backendops.models import Operation, OperationShare, PendingBackendOp
from backendops.progress import Aggregate, Reading
from backendops.states import OUTSTANDING, OperationState, OpState, Verb, operation_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One operation, computed from its ops; `ops` in the order of their nodes' names."""

    operation: Operation
    state: OperationState
    counts: Mapping[OpState, int]
    progress: Aggregate
    ops: Sequence[PendingBackendOp]

    @property
    def total(self) -> int:
        return len(self.ops)

    @property
    def done(self) -> int:
        return self.counts.get(OpState.SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        return self.counts.get(OpState.FAILED, 0) + self.counts.get(OpState.DEAD, 0)

    @property
    def active(self) -> bool:
        """Something is under way, or waits for its turn."""
        return any(op.state in OUTSTANDING and op.state != OpState.FAILED for op in self.ops)

    @property
    def cancellable(self) -> bool:
        return any(cancellable(op) for op in self.ops)

    @property
    def finished_at(self) -> datetime | None:
        """When the last of them ended; None as long as one has not."""
        ends = [op.finished_at for op in self.ops]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    @property
    def error(self) -> str:
        """Who failed and why; nobody else is named."""
        bad = [op for op in self.ops if op.state in (OpState.FAILED, OpState.DEAD)]
        return "; ".join(f"{op.node.name}: {op.last_error}" for op in bad[:10])


def cancellable(op: PendingBackendOp) -> bool:
    """Whether cancelling makes sense: a delete that the node has begun is not stopped halfway."""
    if op.state in (OpState.QUEUED, OpState.FAILED):
        return True
    return op.state in (OpState.RUNNING, OpState.UNCONFIRMED) and op.verb != Verb.DELETE


def summarise(operations: Iterable[Operation], *, now: datetime) -> dict[UUID, Summary]:
    """A summary for each of them, in their order."""
    wanted = list(operations)
    ops: dict[UUID, list[PendingBackendOp]] = defaultdict(list)
    shares = OperationShare.objects.filter(operation__in=wanted).select_related("op__node")
    for share in shares.order_by("op__node__name", "op_id"):
        ops[share.operation_id].append(share.op)
    return {one.pk: _summary(one, ops.get(one.pk, []), now=now) for one in wanted}


def summary(operation: Operation, *, now: datetime) -> Summary:
    return summarise([operation], now=now)[operation.pk]


def silence(op: PendingBackendOp, *, now: datetime) -> timedelta | None:
    """How long its worker has told nothing, though it is at it and did tell before."""
    at_it = op.state == OpState.RUNNING
    return progress.silence(op.progress_at, now=now) if at_it else None


def reading(op: PendingBackendOp, *, now: datetime) -> Reading:
    return Reading(
        state=OpState(op.state),
        percentage=op.percentage,
        current_bytes=op.current_bytes,
        total_bytes=op.total_bytes,
        rate=0.0 if silence(op, now=now) else op.rate,
    )


def _summary(operation: Operation, ops: list[PendingBackendOp], *, now: datetime) -> Summary:
    readings = [reading(op, now=now) for op in ops]
    counts = Counter(OpState(op.state) for op in ops)
    return Summary(
        operation=operation,
        state=operation_state(counts),
        counts=counts,
        progress=progress.aggregate(readings, floor=operation.progress_floor),
        ops=ops,
    )
