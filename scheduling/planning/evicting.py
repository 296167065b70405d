"""Room by unloading what may leave, where that makes a placement possible and nowhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from scheduling.planning import filters
from scheduling.planning.drafts import Draft
from scheduling.planning.filters import Kind
from scheduling.planning.spots import Spot
from scheduling.planning.standing import Standing
from scheduling.planning.views import ReplicaView
from scheduling.planning.wishes import Wish
from scheduling.planning.words import count
from scheduling.states import Cause

MEMORY = {Kind.VRAM, Kind.RAM}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """Who would have to go on one node."""

    spot: Spot
    victims: tuple[ReplicaView, ...]
    newest: float  # when the most recently used of them was used

    @property
    def costs(self) -> tuple[int, float, str]:
        return len(self.victims), self.newest, self.spot.view.name


def make_room(draft: Draft, wish: Wish, *, spots: Sequence[Spot] | None = None) -> str:
    """Begin to make room, or wait for what is leaving already; "" when nothing can be done.

    Memory is all that unloading frees: VRAM, or RAM where there is no GPU. Files stay on the disk,
    and a slot belongs to its own model.

    While anything leaves a node of the pool nobody else is sent away: what it frees is known
    only when the node reports it, and two at once would evict more than they need.
    """
    pool = draft.board.pool(wish) if spots is None else spots
    crowded = {spot: _lacks(spot, wish) for spot in pool}
    for spot, lacks in crowded.items():
        # The disk may have become too small since: still it is this one we have begun to empty
        if spot.leaving and lacks & MEMORY and lacks <= MEMORY | {Kind.DISK}:
            return f"{spot.view.name} is unloading: what it frees is known in a moment."
    tight = [spot for spot, lacks in crowded.items() if lacks and lacks <= MEMORY]
    if not tight:
        return ""
    movable = _movable(draft, wish)
    offers = [offer for spot in tight if (offer := _offer(draft, spot, wish, movable))]
    if not offers:
        return ""
    best = min(offers, key=lambda offer: offer.costs)
    for row in best.victims:
        reason = f"Makes room for {wish.name} on {best.spot.view.name}."
        draft.stop(draft.standings[row.model], row, Cause.EVICTED, reason)
    make = "makes" if len(best.victims) == 1 else "make"
    return f"{count(len(best.victims), 'replica')} on {best.spot.view.name} {make} room for it."


def _lacks(spot: Spot, wish: Wish) -> set[Kind]:
    return {found.kind for check in filters.ROOM if (found := check(spot, wish))}


def _movable(draft: Draft, wish: Wish) -> dict[UUID, list[ReplicaView]]:
    """Idle replicas by node, least recently used first, of models that may be disturbed."""
    found: dict[UUID, list[ReplicaView]] = {}
    for standing in draft.standings.values():
        if not _may_disturb(standing, wish):
            continue
        for row in standing.serving:  # those on the wrong node go anyway
            if row.in_flight == 0:
                found.setdefault(row.node, []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row.used, row.id.int))
    return found


def _may_disturb(standing: Standing, wish: Wish) -> bool:
    rule = standing.rule
    return (
        standing.model.name != wish.name
        and not rule.pinned
        and rule.priority <= wish.rule.priority
        and bool(standing.model.vram_bytes)
        and standing.spare > 0
    )


def _offer(
    draft: Draft, spot: Spot, wish: Wish, movable: dict[UUID, list[ReplicaView]]
) -> _Offer | None:
    short = (wish.vram or 0) - spot.vram
    spare: dict[str, int] = {}
    victims: list[ReplicaView] = []
    for row in movable.get(spot.view.id, ()):
        if short <= 0:
            break
        standing = draft.standings[row.model]
        left = spare.setdefault(row.model, standing.spare)
        if left <= 0:
            continue
        spare[row.model] = left - 1
        victims.append(row)
        short -= standing.model.vram_bytes or 0
    if short > 0:
        return None
    needed = _needed(draft, victims, spare=-short)
    return _Offer(spot=spot, victims=needed, newest=max(row.used for row in needed))


def _needed(draft: Draft, victims: list[ReplicaView], *, spare: int) -> tuple[ReplicaView, ...]:
    """Without those that turned out not to be needed: small ones before a large one."""
    kept = []
    for row in victims:
        size = draft.standings[row.model].model.vram_bytes or 0
        if size <= spare:
            spare -= size
        else:
            kept.append(row)
    return tuple(kept)
