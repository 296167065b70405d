"""What changed since a number, for whoever follows along.

Every change of an op takes the next number of one sequence, but numbers are taken before they
are committed: a higher one may be visible earlier. Readers look back a little, and see some
changes twice rather than miss one. A change tells the op's present state, so twice is harmless.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max

from backendops.models import OperationShare, PendingBackendOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One op as it is now."""

    change: int
    op: int
    operations: Sequence[str]
    node: str
    backend: str
    verb: str
    state: str
    percentage: float


def newest() -> int:
    """The highest number in use."""
    highest = PendingBackendOp.objects.aggregate(highest=Max("change"))["highest"]
    return highest or 0


def since(number: int, *, most: int) -> list[Change] | None:
    """What has a higher number, oldest first; None when that is more than `most`."""
    changed = PendingBackendOp.objects.filter(change__gt=number).order_by("change")
    columns = ("change", "id", "node_id", "backend", "verb", "state", "percentage")
    rows = list(changed.values_list(*columns)[: most + 1])
    if len(rows) > most:
        return None
    operations = _operations([row[1] for row in rows])
    return [
        Change(
            change=change,
            op=op,
            operations=operations[op],
            node=str(node),
            backend=backend,
            verb=verb,
            state=state,
            percentage=percentage,
        )
        for change, op, node, backend, verb, state, percentage in rows
    ]


def _operations(ops: list[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    if ops:
        shares = OperationShare.objects.filter(op__in=ops).order_by("id")
        for op, operation in shares.values_list("op_id", "operation_id"):
            found[op].append(str(operation))
    return found
