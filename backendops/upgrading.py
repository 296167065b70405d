"""Which backends could be newer, and where. Pure.

The facts are what workers report, never what this machine has on its disk, and a gallery's
entries are taken whatever hardware they are for: this machine has none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

DEVELOPMENT = "-development"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One backend on one node, as the node told it."""

    node_id: UUID
    node_name: str
    backend: str
    version: str = ""
    digest: str = ""
    is_system: bool = False
    is_meta: bool = False

    @property
    def build(self) -> tuple[str, str]:
        """What should be the same everywhere.

        A meta backend's files differ with the hardware on purpose: only its version counts.
        """
        return self.version, "" if self.is_meta else self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a gallery has under a name."""

    gallery: str
    version: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One backend over all nodes; `drift` names those that differ from most."""

    backend: str
    version: str
    digest: str
    places: Sequence[Place]
    drift: Sequence[Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """`places` is where something would change, in the order of the nodes' names."""

    spread: Spread
    offer: Offer
    places: Sequence[Place]
    why: str

    @property
    def backend(self) -> str:
        return self.spread.backend


def spreads(rows: Iterable[Place]) -> dict[str, Spread]:
    """What most nodes have of each backend, and who differs; by name."""
    by_name: dict[str, list[Place]] = defaultdict(list)
    for row in rows:
        by_name[row.backend].append(row)
    return {name: _spread(name, by_name[name]) for name in sorted(by_name)}


def upgrades(rows: Iterable[Place], offers: Mapping[str, Offer]) -> dict[str, Upgrade]:
    """What a gallery has newer; also what drifted apart and could be made one again.

    A row under an alias has no entry of its name in any gallery and drops out here.
    """
    known = list(rows)
    developed = {(row.node_id, row.backend) for row in known}
    wanted = [
        row
        for row in known
        if not row.is_system and (row.node_id, row.backend + DEVELOPMENT) not in developed
    ]
    found: dict[str, Upgrade] = {}
    for name, spread in spreads(wanted).items():
        offer = offers.get(name)
        upgrade = offer and _upgrade(spread, offer)
        if upgrade:
            found[name] = upgrade
    return found


def _spread(name: str, places: list[Place]) -> Spread:
    places.sort(key=lambda place: (place.node_name, place.node_id))
    counts = Counter(place.build for place in places)
    usual = max(counts, key=lambda build: (counts[build], build))
    version, digest = usual
    drift = [place for place in places if place.build != usual]
    return Spread(backend=name, version=version, digest=digest, places=places, drift=drift)


def _upgrade(spread: Spread, offer: Offer) -> Upgrade | None:
    behind = [place for place in spread.places if _behind(place, offer)]
    if behind:
        return Upgrade(spread=spread, offer=offer, places=behind, why=_why(spread, offer))
    if spread.drift:  # of the same version, so the gallery cannot say who is right
        why = f"{len(spread.drift)} of {len(spread.places)} nodes differ from the others."
        return Upgrade(spread=spread, offer=offer, places=spread.drift, why=why)
    return None


def _behind(place: Place, offer: Offer) -> bool:
    if offer.version and place.version != offer.version:
        return True  # also where it is unknown: early workers reported none
    if not offer.digest or place.is_meta:
        return False
    if offer.version and not place.digest:
        return False  # the version is right, and nothing says that the files are not
    return place.digest != offer.digest


def _why(spread: Spread, offer: Offer) -> str:
    if not offer.version:
        return f"{offer.gallery} has other files under this name."
    if spread.version == offer.version:
        return f"Most have {offer.version}; some differ."
    return f"{offer.gallery} has {offer.version}; most have {spread.version or 'no version'}."
