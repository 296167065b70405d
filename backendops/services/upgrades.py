"""Available upgrades: what nodes told us they have, against what the galleries have."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from backendops import upgrading
from backendops.models import GalleryBackend, NodeBackend, Operation
from backendops.orders import Order, Target
from backendops.services import catalog, requesting, targeting
from backendops.services.targeting import Skipped
from backendops.states import Verb
from backendops.upgrading import Offer, Place, Spread, Upgrade
from clustermgr.lib.errors import DomainError
from nodes.models import BackendNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One backend of "upgrade all": who would be asked, and who would not and why."""

    upgrade: Upgrade
    nodes: Sequence[BackendNode]
    skipped: Sequence[Skipped]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    operation: Operation | None
    step: Step
    refusal: str  # why there is no operation


def available() -> dict[str, Upgrade]:
    """Everything that could be newer, by backend; two queries, and no node is asked."""
    return upgrading.upgrades(_places(), _offers())


def spread() -> dict[str, Spread]:
    """Every backend over the fleet, with who drifted from the majority."""
    return upgrading.spreads(_places())


def survey() -> tuple[dict[str, Spread], dict[str, Upgrade]]:
    """Both at once, for a page that shows both: the fleet is read a single time."""
    places = _places()
    return upgrading.spreads(places), upgrading.upgrades(places, _offers())


def preview(only: Collection[str] = ()) -> list[Step]:
    """What "upgrade all", or all of these, would do; nothing is written."""
    wanted = [found for name, found in available().items() if not only or name in only]
    ids = {place.node_id for found in wanted for place in found.places}
    nodes = BackendNode.objects.in_bulk(ids)
    return [_step(found, nodes) for found in wanted]


def upgrade_all(
    *, by: str, now: datetime, only: Collection[str] = (), reason: str = ""
) -> list[Begun]:
    """Order every available upgrade; one that is refused does not keep the others."""
    return [_begin(step, by=by, now=now, reason=reason) for step in preview(only)]


def _begin(step: Step, *, by: str, now: datetime, reason: str) -> Begun:
    if not step.nodes:
        words = " ".join(skip.why for skip in step.skipped[:5])
        return Begun(operation=None, step=step, refusal=words)
    order = catalog.resolve(Order.of(Verb.UPGRADE, backend=step.upgrade.backend))
    target = Target(nodes=tuple(node.pk for node in step.nodes))
    try:
        placed = requesting.place(order, target, by=by, now=now, reason=reason)
    except DomainError as refusal:
        return Begun(operation=None, step=step, refusal=str(refusal))
    return Begun(operation=placed.operation, step=step, refusal="")


def _step(found: Upgrade, nodes: dict[object, BackendNode]) -> Step:
    takers: list[BackendNode] = []
    skipped: list[Skipped] = []
    for place in found.places:
        node = nodes[place.node_id]
        if why := targeting.obstacle(node):
            skipped.append(Skipped(node=node, why=why))
        else:
            takers.append(node)
    return Step(upgrade=found, nodes=takers, skipped=skipped)


def _places() -> list[Place]:
    rows = NodeBackend.objects.of_present_nodes().values_list(
        "node_id", "node__name", "name", "version", "digest", "is_system", "is_meta"
    )
    return [
        Place(
            node_id=node_id,
            node_name=node_name,
            backend=name,
            version=version,
            digest=digest,
            is_system=is_system,
            is_meta=is_meta,
        )
        for node_id, node_name, name, version, digest, is_system, is_meta in rows
    ]


def _offers() -> dict[str, Offer]:
    """The first configured gallery that has a name is the one it would come from."""
    rank = {source.name: place for place, source in enumerate(catalog.sources())}
    offers: dict[str, Offer] = {}
    rows = GalleryBackend.objects.filter(gallery__in=rank).values_list(
        "name", "gallery", "version", "digest"
    )
    for name, gallery, version, digest in rows:
        if name not in offers or rank[gallery] < rank[offers[name].gallery]:
            offers[name] = Offer(gallery=gallery, version=version, digest=digest)
    return offers
