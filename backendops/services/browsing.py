"""The catalog as people look through it: what galleries have, and where it is installed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Exists, F, Func, OuterRef, Q, QuerySet

from backendops.models import GalleryBackend, NodeBackend, Operation
from backendops.querysets import NodeBackendQuerySet
from backendops.states import OUTSTANDING, OpState

IN_WORK = tuple(state for state in OUTSTANDING if state != OpState.FAILED)
SORTS = {"name": "name", "repository": "gallery", "license": "license", "status": "-installed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What to look for; `page` counts from 1."""

    term: str = ""
    tag: str = ""
    page: int = 1
    items: int = 9
    sort: str = "name"
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    entries: Sequence[GalleryBackend]
    found: int  # on all pages
    available: int
    installed_names: int
    tags: Sequence[str]
    installed: Mapping[str, Sequence[NodeBackend]]  # of this page's names
    busy: Mapping[str, Operation]  # of every name that is being worked on


def browse(look: Look) -> Listing:
    """One page of the catalog in a constant number of queries; no node is asked."""
    rows = GalleryBackend.objects.all()
    here = NodeBackend.objects.of_present_nodes()
    found = _matching(look).annotate(installed=Exists(here.filter(name=OuterRef("name"))))
    order = F(SORTS[look.sort].removeprefix("-"))
    # "status" means installed first
    down = look.descending != SORTS[look.sort].startswith("-")
    ordered = found.order_by(order.desc() if down else order.asc(), "name", "gallery")
    start = (look.page - 1) * look.items
    entries = list(ordered[start : start + look.items])
    return Listing(
        entries=entries,
        found=found.count(),
        available=rows.count(),
        installed_names=here.values("name").distinct().count(),
        tags=_tags(),
        installed=_installed({entry.name for entry in entries}),
        busy=_busy(),
    )


def installed() -> dict[str, list[NodeBackend]]:
    """Everything that present nodes have, by name; one query."""
    return _by_name(NodeBackend.objects.of_present_nodes())


def offered() -> tuple[list[GalleryBackend], set[str]]:
    """Every gallery entry, and every name that is installed somewhere; two queries."""
    names = NodeBackend.objects.of_present_nodes().order_by().values_list("name", flat=True)
    return list(GalleryBackend.objects.order_by("name", "gallery")), set(names.distinct())


def _matching(look: Look) -> QuerySet[GalleryBackend]:
    rows = GalleryBackend.objects.all()
    if look.term:
        rows = rows.filter(
            Q(name__icontains=look.term)
            | Q(description__icontains=look.term)
            | Q(tags__contains=[look.term])
        )
    return rows.filter(tags__contains=[look.tag]) if look.tag else rows


def _tags() -> list[str]:
    every = GalleryBackend.objects.order_by().annotate(tag=Func(F("tags"), function="unnest"))
    return sorted(every.values_list("tag", flat=True).distinct())


def _installed(names: set[str]) -> dict[str, list[NodeBackend]]:
    return _by_name(NodeBackend.objects.of_present_nodes().filter(name__in=names))


def _by_name(rows: NodeBackendQuerySet) -> dict[str, list[NodeBackend]]:
    there: dict[str, list[NodeBackend]] = defaultdict(list)
    for row in rows.select_related("node").order_by("node__name"):
        there[row.name].append(row)
    return there


def _busy() -> dict[str, Operation]:
    live = Operation.objects.having(*IN_WORK).order_by("requested_at")
    return {operation.backend: operation for operation in live}
