"""What failed too often, grouped by why: a hundred of one cause are one thing to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Max, Min
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from backendops.models import PendingBackendOp
from backendops.querysets import PendingBackendOpQuerySet

CAUSE = 200  # characters of an error that make two of them the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    words: str
    first_at: datetime
    last_at: datetime
    backends: Sequence[str]
    ops: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.ops)


def causes() -> list[Cause]:
    """Every cause with its dead letters, the most frequent first; one query."""
    dead = PendingBackendOp.objects.dead().order_by()
    rows = dead.values(cause=Left("last_error", CAUSE)).annotate(
        first_at=Min("changed_at"),
        last_at=Max("changed_at"),
        backends=ArrayAgg("backend", distinct=True, order_by="backend"),
        ops=ArrayAgg("id", order_by="id"),
    )
    found = [
        Cause(
            words=row["cause"],
            first_at=row["first_at"],
            last_at=row["last_at"],
            backends=row["backends"],
            ops=row["ops"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda cause: (-cause.count, cause.words))


def of_cause(words: str) -> PendingBackendOpQuerySet:
    return PendingBackendOp.objects.dead().filter(Exact(Left("last_error", CAUSE), words))
