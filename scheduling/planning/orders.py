"""A pool of nodes, best first, that stays so while claims are made."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from scheduling.planning import scores
from scheduling.planning.spots import Spot
from scheduling.planning.wishes import Wish

Entry = tuple[tuple[Any, ...], int, int]


class Order:
    """A heap whose entries are checked when they come up.

    A claim makes a node a worse choice, so a stale entry comes up too early, never too late,
    and is put back where it belongs. Packing is the other way round: see `refresh`.
    """

    def __init__(self, spots: Sequence[Spot], wish: Wish) -> None:
        self._spots = spots
        self._wish = wish  # any of its pool: scores.base looks at nothing else
        self._places = {spot: place for place, spot in enumerate(spots)}
        self._stamps = [spot.stamp for spot in spots]
        self._heap: list[Entry] = [self._entry(place) for place in range(len(spots))]
        heapq.heapify(self._heap)

    def first(self, accept: Callable[[Spot], bool]) -> Spot | None:
        """The best that is acceptable; the order stays as it was."""
        passed: list[Entry] = []
        found = None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            _, place, stamp = entry
            if stamp != self._stamps[place]:
                continue  # a fresher one of the same node is in here
            if stamp != self._spots[place].stamp:
                self._push(place)
                continue
            passed.append(entry)
            if accept(self._spots[place]):
                found = self._spots[place]
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    def refresh(self, spot: Spot) -> None:
        """Let a node that became a better choice come up in time."""
        place = self._places.get(spot)
        if place is not None:
            self._push(place)

    def _push(self, place: int) -> None:
        self._stamps[place] = self._spots[place].stamp
        heapq.heappush(self._heap, self._entry(place))

    def _entry(self, place: int) -> Entry:
        spot = self._spots[place]
        exact = spot.vram if self._wish.packs else -spot.vram
        key = (*scores.base(spot, self._wish), exact, spot.view.name)
        return key, place, spot.stamp
