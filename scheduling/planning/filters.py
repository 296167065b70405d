"""Why a node cannot take a replica, one function per reason; nothing to say means it can.

An objection names the smallest change that would withdraw it, and how much that is to ask.
"""

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nodes.selectors import Operator
from nodes.states import Liveness, NodeType, TaintEffect
from nodes.taints import untolerated
from scheduling.planning.spots import Spot
from scheduling.planning.wishes import Wish
from scheduling.planning.words import count, gib


class Kind(enum.StrEnum):
    TYPE = "type"
    APPROVAL = "approval"
    LIVENESS = "liveness"
    DRAIN = "drain"
    CORDON = "cordon"
    QUARANTINE = "quarantine"
    TAINT = "taint"
    SELECTOR = "selector"
    BACKEND = "backend"
    HARDWARE = "hardware"
    BUDGET = "budget"
    SLOT = "slot"
    VRAM = "vram"
    RAM = "ram"  # where there is no GPU
    DISK = "disk"


# From a click to buying a machine
ASKS = {
    Kind.CORDON: 1,
    Kind.SLOT: 2,
    Kind.QUARANTINE: 2,
    Kind.APPROVAL: 2,
    Kind.BUDGET: 3,
    Kind.VRAM: 3,
    Kind.RAM: 3,
    Kind.DISK: 3,
    Kind.DRAIN: 4,
    Kind.BACKEND: 4,
    Kind.TAINT: 5,
    Kind.SELECTOR: 6,
    Kind.LIVENESS: 20,
    Kind.HARDWARE: 100,
    Kind.TYPE: 100,
}


class Objection(NamedTuple):
    """Why not, and what would help."""

    kind: Kind
    why: str
    fix: str
    amount: int = 0  # bytes: among equal kinds the smaller is easier

    @property
    def asks(self) -> int:
        return ASKS[self.kind]


Filter = Callable[[Spot, Wish], Objection | None]


def runs_backends(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.node_type == NodeType.BACKEND:
        return None
    return Objection(Kind.TYPE, "it runs agents, not backends", "add a backend node")


def approved(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.approved_at is not None:
        return None
    return Objection(Kind.APPROVAL, "it waits for approval", f"approve {spot.view.name}")


def alive(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.liveness == Liveness.HEALTHY:
        return None
    return Objection(
        Kind.LIVENESS, f"it is {spot.view.liveness}", f"bring {spot.view.name} back to work"
    )


def staying(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.drain_requested_at is None:
        return None
    return Objection(Kind.DRAIN, "it is being drained", f"resume {spot.view.name}")


def uncordoned(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.cordoned_at is None:
        return None
    return Objection(Kind.CORDON, "it is cordoned", f"uncordon {spot.view.name}")


def trusted(spot: Spot, _: Wish) -> Objection | None:
    if spot.view.quarantined_until is None:
        return None
    return Objection(
        Kind.QUARANTINE, "it is quarantined", f"release {spot.view.name} from its quarantine"
    )


def welcome(spot: Spot, wish: Wish) -> Objection | None:
    if not spot.view.taints:
        return None
    left = untolerated(spot.view.taints, tolerations=wish.tolerations)
    hard = [taint for taint in left if taint.effect == TaintEffect.NO_SCHEDULE]
    if not hard:
        return None
    return Objection(
        Kind.TAINT,
        f"its taint {hard[0]} is not tolerated",
        f"tolerate {hard[0]}, or remove it from {spot.view.name}",
    )


def selected(spot: Spot, wish: Wish) -> Objection | None:
    for requirement in wish.selector.requirements:
        if not requirement.holds(spot.view.labels):
            plain = requirement.operator is Operator.IN and len(requirement.values) == 1
            # As the wish has it: the pair can be typed as it stands
            label = f"label {spot.view.name} {requirement}"
            change = f"change the labels of {spot.view.name} so that {requirement}"
            why = f"its labels do not match {requirement}"
            return Objection(Kind.SELECTOR, why, label if plain else change)
    return None


def free_slot(spot: Spot, wish: Wish) -> Objection | None:
    taken = spot.taken.get(wish.name)
    if not taken or spot.free_index(wish.name) is not None:
        return None
    slots = spot.view.slots
    return Objection(
        Kind.SLOT,
        f"its {count(slots, 'slot')} for {wish.name} {'is' if slots == 1 else 'are'} taken",
        f"raise slots on {spot.view.name} to {slots + 1}",
    )


def can_run(spot: Spot, wish: Wish) -> Objection | None:
    """Its backend is there, or the first load would install it."""
    offer, name, backend = wish.offer, spot.view.name, wish.model.backend
    if offer is None or offer.reaches(spot.view.id, spot.view.capability):
        return None
    if not offer.builds:
        why = f"it does not have the backend {backend}, and no gallery has it"
        return Objection(Kind.BACKEND, why, f"install the backend {backend} on {name}")
    why = f"no gallery has the backend {backend} for {spot.view.capability or 'this node'}"
    builds = " or ".join(sorted(offer.builds))
    fix = f"install a build of {backend} on {name} by hand, or add a node with {builds}"
    return Objection(Kind.BACKEND, why, fix)


def enough_memory(spot: Spot, wish: Wish) -> Objection | None:
    need = wish.vram
    if need is None or spot.vram >= need:
        return None
    name, view = spot.view.name, spot.view
    total, memory = _memory(spot)
    if total < need:
        why = f"it has {gib(total)} of {memory} in all, {gib(need)} are needed"
        fix = f"add a node with at least {gib(need)} of VRAM"
        such = f" that matches {wish.selector}" if wish.selector.requirements else ""
        return Objection(Kind.HARDWARE, why, f"{fix}{such}")
    if spot.gpu and 0 < view.vram_budget < need:
        why = f"its VRAM budget is {gib(view.vram_budget)}, {gib(need)} are needed"
        return Objection(Kind.BUDGET, why, f"raise the VRAM budget of {name} to {gib(need)}")
    short = need - spot.vram
    why = f"{gib(max(spot.vram, 0))} of {memory} are free, {gib(need)} are needed"
    kind = Kind.VRAM if spot.gpu else Kind.RAM
    return Objection(kind, why, f"free {gib(short)} {memory} on {name}", short)


def _memory(spot: Spot) -> tuple[int, str]:
    """Where models live on this node, and how much of it there is; unknown RAM is no RAM."""
    if spot.gpu or not spot.view.total_ram:
        return spot.view.total_vram, "VRAM"
    return spot.view.total_ram, "RAM"


def enough_disk(spot: Spot, wish: Wish) -> Objection | None:
    # A second replica needs no second copy of the files
    if not spot.view.total_disk or spot.disk >= wish.disk or wish.name in spot.taken:
        return None
    short = wish.disk - spot.disk
    why = f"{gib(max(spot.disk, 0))} of disk are free, {gib(wish.disk)} are needed"
    return Objection(Kind.DISK, why, f"free {gib(short)} of disk on {spot.view.name}", short)


STATE: tuple[Filter, ...] = (runs_backends, approved, alive, staying, uncordoned, trusted)
ALLOWED: tuple[Filter, ...] = (welcome, selected, can_run)
ROOM: tuple[Filter, ...] = (free_slot, enough_memory, enough_disk)


ROOMS = {Kind.SLOT, Kind.VRAM, Kind.RAM, Kind.DISK, Kind.BUDGET, Kind.HARDWARE}  # what those say


def meant(spot: Spot, wish: Wish) -> bool:
    """Whether its rule means a node whose state is no obstacle. In no words: all are asked."""
    return wish.selector.matches(spot.view.labels) and welcome(spot, wish) is None


def allows(spot: Spot, wish: Wish) -> bool:
    """Whether the wish may go to a node whose state is no obstacle."""
    return meant(spot, wish) and can_run(spot, wish) is None


def fits(spot: Spot, wish: Wish) -> bool:
    """Whether there is room on a node that allows the wish."""
    return not any(check(spot, wish) for check in ROOM)


def objections(spot: Spot, wish: Wish) -> list[Objection]:
    """Everything that stands in the way, not only the first."""
    return list(_all(spot, wish))


def _all(spot: Spot, wish: Wish) -> Iterator[Objection]:
    checks = (*STATE, *ALLOWED, *ROOM) if spot.closed else (*ALLOWED, *ROOM)
    for check in checks:
        found = check(spot, wish)
        if found is not None:
            yield found
