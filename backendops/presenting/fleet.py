"""What is installed over the fleet: one row per backend, and one per node for one of them."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from django.db.models import Case, Count, Exists, Min, OuterRef, Value, When

from backendops.models import GalleryBackend, NodeBackend, NodeInventory, PendingBackendOp
from backendops.presenting import words
from backendops.services import catalog, upgrades
from backendops.upgrading import Spread, Upgrade
from nodes.models import BackendNode
from nodes.presenting.displays import ago

MOST_NAMES = 5
MOST_OFFERED = 50
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
    why: str
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
    since: str
    observed: str
    differs: bool
    pending: PendingBackendOp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a gallery tells of a backend; only links that a browser may follow."""

    entry: GalleryBackend
    links: list[str]
    icon: str


def moment(text: str) -> str:
    """A worker's time for people; in its own words if it is none that we can read."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at.tzinfo else text


def rows(*, search: str = "", now: datetime) -> list[Row]:
    """Every backend that some present node has or is about to get; a fixed number of queries."""
    spreads, newer = upgrades.survey()
    there = NodeBackend.objects.of_present_nodes().order_by()
    oldest = dict(there.values_list("name").annotate(Min("observed_at")))
    waits = PendingBackendOp.objects.outstanding().order_by()
    pending = dict(waits.values_list("backend").annotate(Count("pk")))
    total = BackendNode.objects.approved().backends().count()
    return [
        _row(
            name,
            spreads.get(name),
            of=total,
            pending=pending.get(name, 0),
            newer=newer.get(name),
            seen=ago(oldest[name], now=now) if name in oldest else "",
        )
        for name in sorted(spreads.keys() | pending.keys())
        if search.lower() in name.lower()
    ]


def row(name: str, *, now: datetime) -> Row | None:
    return next((one for one in rows(search=name, now=now) if one.name == name), None)


def _row(
    name: str, spread: Spread | None, *, of: int, pending: int, newer: Upgrade | None, seen: str
) -> Row:
    places = spread.places if spread else ()
    builds = Counter((place.version, place.digest) for place in places)
    return Row(
        name=name,
        installed=len(places),
        of=of,
        builds=[
            Build(version=version or UNKNOWN, digest=words.short(digest), count=count)
            for (version, digest), count in builds.most_common()
        ],
        drifting=[place.node_name for place in spread.drift] if spread else [],
        pending=pending,
        upgrade=(newer.offer.version or words.short(newer.offer.digest) or "yes") if newer else "",
        why=newer.why if newer else "",
        system=sum(place.is_system for place in places),
        oldest=seen,
    )


def offered(*, search: str = "") -> list[GalleryBackend]:
    """What galleries have and no present node has, each from the gallery it would come from.

    One more than a page shows; one query.
    """
    there = NodeBackend.objects.of_present_nodes().filter(name=OuterRef("name"))
    ranks = [
        When(gallery=source.name, then=Value(place))
        for place, source in enumerate(catalog.sources())
    ]
    rows = GalleryBackend.objects.filter(~Exists(there), name__icontains=search)
    ranked = rows.annotate(rank=Case(*ranks, default=Value(len(ranks))))
    return list(ranked.order_by("name", "rank").distinct("name")[: MOST_OFFERED + 1])


def about(name: str) -> About | None:
    """The entry that it would be installed from; one query."""
    entries = {entry.gallery: entry for entry in GalleryBackend.objects.filter(name=name)}
    entry = next((entries[one.name] for one in catalog.sources() if one.name in entries), None)
    if entry is None:
        return None
    icon = entry.icon if on_the_web(entry.icon) else ""
    return About(entry=entry, links=[url for url in entry.urls if on_the_web(url)], icon=icon)


def on_the_web(url: str) -> bool:
    """Whether a link may be offered: what a gallery says is somebody else's text."""
    try:
        there = urlsplit(url)
    except ValueError:
        return False
    return there.scheme in ("http", "https") and bool(there.netloc)


def on_nodes(
    name: str, *, drifting: Collection[str], start: int, count: int, now: datetime
) -> list[Installed]:
    """Where one backend is, by node; the nodes that drifted are marked. Two queries."""
    there = NodeBackend.objects.of_present_nodes().filter(name=name).select_related("node")
    rows = list(there.order_by("node__name")[start : start + count])
    outstanding = PendingBackendOp.objects.outstanding().filter(
        backend=name, node__in=[one.node_id for one in rows]
    )
    waits = {op.node_id: op for op in outstanding}
    return [
        _installed(one, waits.get(one.node_id), differs=one.node.name in drifting, now=now)
        for one in rows
    ]


def _installed(
    one: NodeBackend, pending: PendingBackendOp | None, *, differs: bool, now: datetime
) -> Installed:
    return Installed(
        row=one,
        digest=words.short(one.digest),
        since=moment(one.installed_at),
        observed=ago(one.observed_at, now=now),
        differs=differs,
        pending=pending,
    )


def on_node(node: BackendNode, *, now: datetime) -> dict[str, object]:
    """What one node has and is about to get; three queries."""
    rows = list(NodeBackend.objects.filter(node=node).order_by("name"))
    waits = PendingBackendOp.objects.outstanding().filter(node=node).order_by("id")
    pending = {op.backend: op for op in waits}
    told = NodeInventory.objects.filter(node=node).first()
    return {
        "installed": [
            _installed(one, pending.get(one.name), differs=False, now=now) for one in rows
        ],
        "outstanding": [op for op in pending.values() if op.backend not in {r.name for r in rows}],
        "inventory": told,
        "observed": ago(told.observed_at, now=now) if told and told.observed_at else "",
    }
