"""Operations in numbers only: one query for any count of operations with any count of nodes.

`summaries` reads every op because the API lists them; a page of fifty fan-outs over a thousand
nodes must not. Both name the same state and the same percentage (tests/backendops_admin).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, F, FloatField, Max, Min, Q, Sum, Value, When
from django.db.models.functions import Cast, Concat, Greatest, Least, Left, NullIf

from backendops.models import Operation, OperationShare
from backendops.progress import DONE, LONGEST_ETA, SILENT_AFTER
from backendops.querysets import ready
from backendops.services import queueing
from backendops.services.queueing import Place
from backendops.states import ATTENTION, OUTSTANDING, OperationState, OpState, operation_state

UNDER_WAY = tuple(state for state in OUTSTANDING if state not in ATTENTION)
MOST_LIVE = 200  # a strip says one line and "N more"; it need not know of more than these
READY_SHARE = ready("op__node")
ERROR = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """One operation without its nodes."""

    operation: UUID
    verb: str
    backend: str
    requested_at: datetime
    acknowledged: bool
    counts: Mapping[OpState, int]
    percentage: float
    current_bytes: int
    total_bytes: int  # 0: not known for all of them
    rate: float
    eta: timedelta | None
    first_error: str  # of the first node by name that failed, with its name
    moving: int  # ops at work, or about to be: their nodes take orders
    finished_at: datetime | None  # when the last of them ended; None: not all have
    silent: int  # ops at work that told something, and for long nothing
    silence: timedelta | None  # of the last one heard, if all that are at work are silent

    @property
    def state(self) -> OperationState:
        return operation_state(self.counts)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        return self.counts[OpState.SUCCEEDED]

    @property
    def failed(self) -> int:
        return self.counts[OpState.FAILED] + self.counts[OpState.DEAD]

    @property
    def superseded(self) -> int:
        return self.counts[OpState.SUPERSEDED]

    @property
    def cancelled(self) -> int:
        return self.counts[OpState.CANCELLED]

    @property
    def needs_attention(self) -> bool:
        """Failed, and nobody has said that they know."""
        return bool(self.failed) and not self.acknowledged

    @property
    def active(self) -> bool:
        """The node may be at it, or its turn comes; a failure is not activity."""
        return any(self.counts[state] for state in UNDER_WAY)


def rollups(operations: Iterable[Operation], *, now: datetime) -> dict[UUID, Rollup]:
    """One for each of them; one query."""
    wanted = list(operations)
    shares = OperationShare.objects.filter(operation__in=[one.pk for one in wanted])
    found = {row["operation_id"]: _rollup(row, now=now) for row in _rows(shares, now=now)}
    return {one.pk: found.get(one.pk) or _without_nodes(one) for one in wanted}


def live(*, now: datetime) -> list[Rollup]:
    """What is under way or failed and not dismissed, newest first; at most MOST_LIVE."""
    wanted = Q(op__state__in=UNDER_WAY) | Q(
        op__state__in=ATTENTION, operation__acknowledged_at=None
    )
    ids = OperationShare.objects.filter(wanted).values("operation_id")
    shares = OperationShare.objects.filter(operation__in=ids).order_by("-operation__requested_at")
    return [_rollup(row, now=now) for row in _rows(shares, now=now)[:MOST_LIVE]]


def places(operations: Iterable[UUID]) -> dict[UUID, Place]:
    """Where those stand that wait for their turn, not for their node; two queries.

    A fan-out waits in the lines of many nodes; it is told by the one where it is nearest.
    """
    shares = OperationShare.objects.filter(READY_SHARE, op__state=OpState.QUEUED)
    waiting = list(shares.filter(operation__in=list(operations)).select_related("op"))
    found = queueing.places(share.op for share in waiting)
    nearest: dict[UUID, Place] = {}
    for share in waiting:
        place, known = found[share.op_id], nearest.get(share.operation_id)
        if known is None or place.position < known.position:
            nearest[share.operation_id] = place
    return nearest


def _without_nodes(operation: Operation) -> Rollup:
    """Its nodes' rows were pruned; what was asked for is still known."""
    return Rollup(
        operation=operation.pk,
        verb=operation.verb,
        backend=operation.backend,
        requested_at=operation.requested_at,
        acknowledged=operation.acknowledged_at is not None,
        counts=dict.fromkeys(OpState, 0),
        percentage=operation.progress_floor,
        current_bytes=0,
        total_bytes=0,
        rate=0.0,
        eta=None,
        first_error="",
        moving=0,
        finished_at=None,
        silent=0,
        silence=None,
    )


def _rows(shares: Any, *, now: datetime) -> Any:
    state = "op__state"
    counted = ~Q(op__state__in=[OpState.CANCELLED, OpState.SUPERSEDED])
    sized, unsized = counted & Q(op__total_bytes__gt=0), counted & Q(op__total_bytes=0)
    done = Case(
        When(op__state=OpState.SUCCEEDED, then=Value(DONE)),
        default=Least(Greatest("op__percentage", Value(0.0)), Value(DONE)),
        output_field=FloatField(),
    )
    size = Cast("op__total_bytes", FloatField())
    left = Greatest(size - F("op__current_bytes"), Value(0.0)) / NullIf("op__rate", Value(0.0))
    running = Q(op__state=OpState.RUNNING)
    silent = running & Q(op__progress_at__lte=now - SILENT_AFTER)
    heard = running & (Q(op__progress_at=None) | Q(op__progress_at__gt=now - SILENT_AFTER))
    timed = heard & Q(op__rate__gt=0, op__total_bytes__gt=0)
    at_work = Q(op__state__in=[OpState.RUNNING, OpState.CANCELLING])
    moving = at_work | (Q(op__state=OpState.QUEUED) & READY_SHARE)
    failure = Concat("op__node__name", Value(": "), Left("op__last_error", ERROR))
    return shares.values(
        "operation_id",
        "operation__verb",
        "operation__backend",
        "operation__requested_at",
        "operation__acknowledged_at",
        "operation__progress_floor",
    ).annotate(
        **{str(one.value): Count("id", filter=Q(**{state: one})) for one in OpState},
        sized=Count("id", filter=sized),
        bytes_of_sized=Sum(size, filter=sized),
        done_of_sized=Sum(size * done, filter=sized),
        unsized=Count("id", filter=unsized),
        done_of_unsized=Sum(done, filter=unsized),
        bytes_now=Sum("op__current_bytes", filter=counted),
        total_rate=Sum("op__rate", filter=heard),
        timed=Count("id", filter=timed),
        longest=Max(left, filter=timed),
        first_error=Min(failure, filter=Q(op__state__in=ATTENTION)),
        moving=Count("id", filter=moving),
        last_end=Max("op__finished_at"),
        open=Count("id", filter=Q(op__finished_at=None)),
        silent=Count("id", filter=silent),
        heard_at=Max("op__progress_at", filter=silent),
    )


def _rollup(row: Mapping[str, Any], *, now: datetime) -> Rollup:
    counts = {one: row[one.value] for one in OpState}
    known = not row["unsized"]
    return Rollup(
        operation=row["operation_id"],
        verb=row["operation__verb"],
        backend=row["operation__backend"],
        requested_at=row["operation__requested_at"],
        acknowledged=row["operation__acknowledged_at"] is not None,
        counts=counts,
        percentage=max(_mean(row), row["operation__progress_floor"]),
        current_bytes=int(row["bytes_now"] or 0),
        total_bytes=int(row["bytes_of_sized"] or 0) if known else 0,
        rate=row["total_rate"] or 0.0,
        eta=None if counts[OpState.QUEUED] else _eta(row, running=counts[OpState.RUNNING]),
        first_error=row["first_error"] or "",
        moving=row["moving"],
        finished_at=None if row["open"] else row["last_end"],
        silent=row["silent"],
        silence=now - row["heard_at"] if row["silent"] == counts[OpState.RUNNING] > 0 else None,
    )


def _mean(row: Mapping[str, Any]) -> float:
    """progress.aggregate from sums: a node of unknown size weighs as much as the others do."""
    total = row["bytes_of_sized"] or 0.0
    usual = total / row["sized"] if row["sized"] else 1.0
    weight = total + usual * row["unsized"]
    done = (row["done_of_sized"] or 0.0) + usual * (row["done_of_unsized"] or 0.0)
    return float(done / weight) if weight else 0.0


def _eta(row: Mapping[str, Any], *, running: int) -> timedelta | None:
    if not running or row["timed"] != running:
        return None
    left = timedelta(seconds=row["longest"])
    return left if left <= LONGEST_ETA else None
