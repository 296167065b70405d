"""What is installed over the fleet: one row per backend, and one per node for one of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from backendops.models import GalleryBackend, NodeBackend, NodeInventory, PendingBackendOp
from nodes.models import BackendNode
from nodes.presenting.displays import ago

SHORT = 12  # characters of a digest that people compare
MOST_NAMES = 5
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One version and digest, and how many nodes have it."""

    version: str
    digest: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One backend over the fleet."""

    name: str
    installed: int
    of: int
    builds: list[Build]
    drifting: list[str]  # nodes that differ from what most have
    pending: int
    upgrade: str
    system: int
    oldest: str

    @property
    def drift(self) -> str:
        names = ", ".join(self.drifting[:MOST_NAMES])
        more = len(self.drifting) - MOST_NAMES
        return f"{names} and {more} more" if more > 0 else names


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One backend on one node."""

    row: NodeBackend
    digest: str
    observed: str
    differs: bool
    pending: PendingBackendOp | None


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:SHORT]


def rows(*, search: str = "", now: datetime) -> list[Row]:
    """Every backend that some present node has or is about to get; five queries."""
    there = NodeBackend.objects.of_present_nodes().select_related("node").defer("node__recoveries")
    waits = PendingBackendOp.objects.outstanding()
    if search:
        there, waits = there.filter(name__icontains=search), waits.filter(backend__icontains=search)
    by_name: dict[str, list[NodeBackend]] = defaultdict(list)
    for one in there.order_by("name", "node__name"):
        by_name[one.name].append(one)
    pending = dict(waits.order_by().values_list("backend").annotate(Count("pk")))
    offers = _offers(by_name)
    total = BackendNode.objects.approved().backends().count()
    return [
        _row(name, by_name.get(name, []), total, pending.get(name, 0), offers.get(name), now=now)
        for name in sorted(by_name.keys() | pending.keys())
    ]


def _row(
    name: str,
    there: list[NodeBackend],
    total: int,
    pending: int,
    offer: GalleryBackend | None,
    *,
    now: datetime,
) -> Row:
    builds = Counter((one.version, one.digest) for one in there)
    usual = builds.most_common(1)[0][0] if builds else ("", "")
    return Row(
        name=name,
        installed=len(there),
        of=total,
        builds=[
            Build(version=version or UNKNOWN, digest=short(digest), count=count)
            for (version, digest), count in builds.most_common()
        ],
        drifting=[one.node.name for one in there if (one.version, one.digest) != usual],
        pending=pending,
        upgrade=_upgrade(there, offer),
        system=sum(one.is_system for one in there),
        oldest=ago(min(one.observed_at for one in there), now=now) if there else "",
    )


def _offers(names: Iterable[str]) -> dict[str, GalleryBackend]:
    return {entry.name: entry for entry in GalleryBackend.objects.filter(name__in=list(names))}


def _upgrade(there: list[NodeBackend], offer: GalleryBackend | None) -> str:
    """What the gallery has and some node has not; empty: nothing newer is known."""
    if offer is None:
        return ""
    ours = [one for one in there if not one.is_system]
    if offer.digest and any(one.digest and one.digest != offer.digest for one in ours):
        return offer.version or short(offer.digest)
    return (
        offer.version if any(offer.version and one.version != offer.version for one in ours) else ""
    )


def on_nodes(name: str, *, now: datetime) -> list[Installed]:
    """Where one backend is; three queries."""
    there = list(NodeBackend.objects.of_present_nodes().filter(name=name).select_related("node"))
    builds = Counter((one.version, one.digest) for one in there)
    usual = builds.most_common(1)[0][0] if builds else ("", "")
    waits = {op.node_id: op for op in PendingBackendOp.objects.outstanding().filter(backend=name)}
    return [
        Installed(
            row=one,
            digest=short(one.digest),
            observed=ago(one.observed_at, now=now),
            differs=(one.version, one.digest) != usual,
            pending=waits.get(one.node_id),
        )
        for one in there
    ]


def on_node(node: BackendNode, *, now: datetime) -> dict[str, object]:
    """What one node has and is about to get; three queries."""
    rows = list(NodeBackend.objects.filter(node=node).order_by("name"))
    waits = PendingBackendOp.objects.outstanding().filter(node=node).order_by("id")
    pending = {op.backend: op for op in waits}
    told = NodeInventory.objects.filter(node=node).first()
    return {
        "installed": [
            Installed(
                row=one,
                digest=short(one.digest),
                observed=ago(one.observed_at, now=now),
                differs=False,
                pending=pending.get(one.name),
            )
            for one in rows
        ],
        "outstanding": [op for op in pending.values() if op.backend not in {r.name for r in rows}],
        "inventory": told,
        "observed": ago(told.observed_at, now=now) if told and told.observed_at else "",
    }
