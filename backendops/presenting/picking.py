"""The nodes an order could be for: who fits, who has it, who is busy with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from backendops.models import GalleryBackend, NodeBackend, PendingBackendOp
from backendops.orders import Order
from backendops.services import catalog, requesting, targeting
from nodes.models import BackendNode
from nodes.presenting.displays import DULL, size
from nodes.querysets import BackendNodeQuerySet
from nodes.selectors import Selector
from nodes.services import labels
from nodes.states import NodeStatus

PER_PAGE = 50
MOST_CHIPS = 3
NO_CAPABILITY = "default"  # a worker's word for: nothing special
# How whole sets are chosen; the words are on the buttons
CHOICES = {
    "healthy": "All healthy",
    "compatible": "All compatible",
    "missing": "All that lack it",
    "having": "All that have it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One node, ready for the picker."""

    node: BackendNode
    checked: bool
    why_not: str
    installed: str
    system: bool
    busy: PendingBackendOp | None
    hardware: str
    chips: list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    candidates: list[Candidate]
    number: int
    last: int
    matching: int


def matching(text: str) -> BackendNodeQuerySet:
    """Approved nodes whose name contains it, or whose labels match it; the caller's refusals."""
    nodes = BackendNode.objects.approved().backends().order_by("name")
    if any(sign in text for sign in "=<>!(),"):
        return nodes.matching(Selector.parse(text))
    return nodes.filter(name__icontains=text) if text else nodes


def waiting() -> int:
    """Machines that nobody has let in: left out, and counted."""
    return BackendNode.objects.waiting_for_approval().backends().count()


def page(
    nodes: BackendNodeQuerySet, order: Order | None, *, chosen: frozenset[UUID], number: int
) -> Page:
    """One page of them; a fixed number of queries."""
    total = nodes.count()
    last = max((total + PER_PAGE - 1) // PER_PAGE, 1)
    number = min(max(number, 1), last)
    rows = list(nodes[(number - 1) * PER_PAGE : number * PER_PAGE])
    return Page(
        candidates=_candidates(rows, order, chosen=chosen),
        number=number,
        last=last,
        matching=total,
    )


def whole_set(nodes: BackendNodeQuerySet, order: Order | None, *, choice: str) -> frozenset[UUID]:
    """Every node of a named set, on whatever page it is."""
    rows = list(nodes)
    if choice == "healthy":
        return frozenset(node.pk for node in rows if node.status == NodeStatus.HEALTHY)
    if order is None or choice not in CHOICES:
        return frozenset()
    why = targeting.suitability(rows, order)
    has = _installed(order, rows)
    fits = {node.pk for node in rows if not why[node.pk]}
    if choice == "missing":
        return frozenset(fits - has.keys())
    return frozenset(fits & has.keys() if choice == "having" else fits)


def _candidates(
    rows: Sequence[BackendNode], order: Order | None, *, chosen: frozenset[UUID]
) -> list[Candidate]:
    ids = [node.pk for node in rows]
    told = labels.effective(ids)
    why = targeting.suitability(rows, order) if order else {}
    has = _installed(order, rows) if order else {}
    busy = requesting.busy_nodes(order.backend, ids) if order else {}
    return [
        _candidate(
            node,
            checked=node.pk in chosen,
            why_not=why.get(node.pk, ""),
            has=has.get(node.pk),
            busy=busy.get(node.pk),
            told=told[node.pk],
        )
        for node in rows
    ]


def _candidate(
    node: BackendNode,
    *,
    checked: bool,
    why_not: str,
    has: NodeBackend | None,
    busy: PendingBackendOp | None,
    told: dict[str, str],
) -> Candidate:
    shown = sorted((key, value) for key, value in told.items() if key not in DULL)
    known = node.capability if node.capability != NO_CAPABILITY else ""
    gpu = known or node.gpu_vendor or "no GPU"
    return Candidate(
        node=node,
        checked=checked,
        why_not=why_not,
        installed=(has.version or "unknown version") if has else "",
        system=bool(has and has.is_system),
        busy=busy,
        hardware=f"{gpu}, {size(int(node.total_vram))}" if node.total_vram else gpu,
        chips=shown[:MOST_CHIPS],
    )


def _installed(order: Order, rows: Sequence[BackendNode]) -> dict[UUID, NodeBackend]:
    there = NodeBackend.objects.filter(name=order.backend, node__in=[node.pk for node in rows])
    return {row.node_id: row for row in there}


def known_backends() -> list[str]:
    """What can be typed without looking it up: the galleries' entries."""
    return list(GalleryBackend.objects.order_by("name").values_list("name", flat=True).distinct())


def known_galleries() -> list[tuple[str, str]]:
    return [(source.name, source.url) for source in catalog.sources()]
