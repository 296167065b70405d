"""Who saw which beginning of a prompt last: bounded, forgetting, safe for threads.

LocalAI keeps a tree. A link of a chain already stands for its whole path, so a dictionary of links
does: the longest match is the deepest link that is known. All links of one recorded prompt share
one `_Trail`, hence cost a slot in the dictionary and the number itself. Whoever records a prompt
takes over the part it shares with older ones; that part is always the head of theirs, so a trail
keeps the tail nobody took. Trails are linked from oldest to newest: what expires or is evicted
is at the old end, and is always deeper than whatever was recorded later. A replica that is gone
is unknown at once and its links go in turns: nobody waits at the lock for a hundred thousand.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from struct import pack, unpack
from typing import NamedTuple
from uuid import UUID

from scheduling.prefixes.chains import Chain

LINK = 8  # bytes
# A call looks after so many links that expired; more than a prompt has, so they cannot pile up
IN_PASSING = 128
AT_ONCE = 2000  # about a millisecond at the lock
# The scale of weights grows with time: before it leaves what a float can hold it is set back
LONGEST_SCALE = 256.0  # half-lives

_weight = attrgetter("weight")


class Seat(NamedTuple):
    """A replica: its row, and the slot by which other processes know it."""

    id: UUID
    node: UUID
    slot: int


class Match(NamedTuple):
    """Who saw the longest part of a prompt, and how many links of it."""

    seat: Seat
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """In seconds and links."""

    ttl: float = 300.0
    half_life: float = 120.0
    entries: int = 1_000_000

    @property
    def refresh(self) -> float:
        """How long others remember what they were told, with time to spare (D-31)."""
        return self.ttl / 3


class _Trail:
    """One recorded prompt: the part that nobody recorded later."""

    __slots__ = ("live", "newer", "older", "owner", "seen", "tail", "told")

    def __init__(self, owner: "_Owner", seen: float, told: float, links: bytes) -> None:
        self.owner = owner
        self.seen = seen
        self.told = told  # when others last heard of it
        self.tail = links  # contains every link that is still ours
        self.live = len(links) // LINK
        self.older: _Trail | None = None
        self.newer: _Trail | None = None


class _Owner:
    """What one replica has seen of one model."""

    __slots__ = ("gone", "seat", "shelf", "trails", "weight")

    def __init__(self, shelf: "_Shelf", seat: Seat) -> None:
        self.shelf = shelf
        self.seat = seat
        self.trails: set[_Trail] = set()
        self.weight = 0.0  # of all its links, on the scale of the index
        self.gone = False  # nobody is sent to it; its trails are still to be dropped


class _Shelf:
    """What is known of one model; gone with its last link."""

    __slots__ = ("entries", "holed_until", "model", "owners")

    def __init__(self, model: str) -> None:
        self.model = model
        self.entries: dict[int, _Trail] = {}
        self.owners: dict[tuple[UUID, int], _Owner] = {}
        self.holed_until = float("-inf")


class PrefixIndex:
    """Time is in seconds of any clock; it never runs backwards here, whatever is passed."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}
        self._nodes: dict[UUID, set[_Owner]] = {}
        self._oldest: _Trail | None = None
        self._newest: _Trail | None = None
        self._gone: deque[_Owner] = deque()
        self._size = 0
        self._latest = self._epoch = float("-inf")

    def __len__(self) -> int:
        return self._size

    def match(self, model: str, chain: Chain, *, now: float) -> Match | None:
        """The deepest link that is known and has not expired."""
        with self._lock:
            now = self._advance(now)
            return self._match(model, chain, now)

    def look(
        self, model: str, chain: Chain, *, now: float
    ) -> tuple[Match | None, tuple[UUID, ...]]:
        """The longest match, and everybody who remembers something, least first."""
        with self._lock:
            now = self._advance(now)
            shelf = self._shelves.get(model)
            return self._match(model, chain, now), _coldest(shelf) if shelf else ()

    def record(self, model: str, chain: Chain, seat: Seat, *, now: float) -> bool:
        """Note that `seat` sees this prompt; True when others should be told.

        They should when it is new, deeper, somebody else's, or not told for a while.
        """
        if not chain:
            return False
        with self._lock:
            now = self._advance(now)
            owner = self._owner(model, seat)
            known = owner.shelf.entries.get(chain[-1])
            fresh = (
                known is None or known.owner is not owner or now - known.told > self.limits.refresh
            )
            self._insert(owner, chain, now, told=now if known is None or fresh else known.told)
            return fresh

    def adopt(self, model: str, chain: Chain, seat: Seat, *, now: float) -> None:
        """Note what another process saw: it told everybody. No link may stand twice in it."""
        if not chain:
            return
        with self._lock:
            now = self._advance(now)
            self._insert(self._owner(model, seat), chain, now, told=now)

    def weights(self, model: str, *, now: float) -> dict[Seat, float]:
        """How much each replica remembers: its links, each halved with every half-life.

        Kept by adding and taking away, never by a walk: exact to about twelve digits of the most
        it ever was since it was empty, and once `sweep` has removed what expired.
        """
        with self._lock:
            now = self._advance(now)
            shelf = self._shelves.get(model)
            worth = self._scale(now)
            owners = shelf.owners.values() if shelf else ()
            return {owner.seat: owner.weight / worth for owner in owners}

    def forget(self, model: str, node: UUID, index: int | None = None) -> None:
        """Know no more what one replica of a node saw of a model, or all of them."""
        with self._lock:
            for owner in [*self._nodes.get(node, ())]:
                if owner.shelf.model == model and index in (None, owner.seat.slot):
                    self._leave(owner)

    def sweep(self, *, now: float) -> bool:
        """Drop some of what nobody may match; True while there may be more.

        Others may come between two calls; hence not in one.
        """
        with self._lock:
            now = self._advance(now)
            left = self._clear(AT_ONCE)
            return self._expire(now, left)

    def _match(self, model: str, chain: Chain, now: float) -> Match | None:
        shelf = self._shelves.get(model)
        if shelf is None:
            return None
        depth, trail = self._deepest(shelf, chain, now)
        return Match(trail.owner.seat, depth) if trail is not None else None

    def _deepest(self, shelf: _Shelf, chain: Chain, now: float) -> tuple[int, _Trail | None]:
        find, ttl = shelf.entries.get, self.limits.ttl
        found, low, high = None, 0, len(chain)
        depth = high  # first all of it: the same prompt once more
        while low < high:
            trail = find(chain[depth - 1])
            if trail is not None and now - trail.seen <= ttl and not trail.owner.gone:
                low, found = depth, trail
            else:
                high = depth - 1
            # By halves: what was recorded later is shallower, so no link is known without those
            # before it; unless somebody was forgotten who has left a hole above what others saw.
            depth = high if now <= shelf.holed_until else (low + high + 1) // 2
        return low, found

    def _owner(self, model: str, seat: Seat) -> _Owner:
        shelf = self._shelves.get(model)
        if shelf is None:
            shelf = self._shelves[model] = _Shelf(model)
        owner = shelf.owners.get(seat[1:])
        if owner is not None and owner.seat.id != seat.id:
            # Another process in the same slot has seen nothing, whether we were told or not
            self._leave(owner)
            return self._owner(model, seat)
        if owner is None:
            owner = _Owner(shelf, seat)
            # Kept in order, so that sorting by weight leaves equal ones by node and slot
            shelf.owners = dict(sorted({**shelf.owners, seat[1:]: owner}.items()))
            self._nodes.setdefault(seat.node, set()).add(owner)
        return owner

    def _insert(self, owner: _Owner, chain: Chain, now: float, *, told: float) -> None:
        links = pack(f"<{len(chain)}Q", *chain)
        trail = _Trail(owner, now, told, links)
        owner.trails.add(trail)
        owner.weight += trail.live * self._scale(now)
        self._append(trail)
        self._size += len(chain)
        for past, start, end in _take(owner.shelf.entries, chain, trail):
            self._shorten(past, links[start * LINK : end * LINK])
        if self._size > self.limits.entries:
            self._clear(self._size - self.limits.entries)
        while self._size > self.limits.entries and self._oldest is not None:
            self._drop(self._oldest)

    def _shorten(self, trail: _Trail, lost: bytes) -> None:
        count = len(lost) // LINK
        self._lose(trail, count)
        # Chains from elsewhere may be no real ones: then the tail keeps more than is ours
        if trail.live and trail.tail.startswith(lost):
            trail.tail = trail.tail[len(lost) :]

    def _leave(self, owner: _Owner) -> None:
        """Its seat is free at once, for another process in the same slot as well."""
        shelf, seat = owner.shelf, owner.seat
        owner.gone = True
        del shelf.owners[seat[1:]]
        if not shelf.owners:
            del self._shelves[shelf.model]
        self._nodes[seat.node].discard(owner)
        if not self._nodes[seat.node]:
            del self._nodes[seat.node]
        if owner.trails:
            shelf.holed_until = self._latest + self.limits.ttl
            self._gone.append(owner)

    def _clear(self, most: int) -> int:
        """Drop about so many links of replicas that are gone; how many more it might have been."""
        while self._gone and most > 0:
            trails = self._gone[0].trails
            if trails:
                most -= self._drop(trails.pop())
            else:
                self._gone.popleft()
        return most

    def _drop(self, trail: _Trail) -> int:
        """How many links it had to look at."""
        entries, count = trail.owner.shelf.entries, len(trail.tail) // LINK
        for link in unpack(f"<{count}Q", trail.tail):
            if entries.get(link) is trail:
                del entries[link]
        self._lose(trail, trail.live)
        return count

    def _lose(self, trail: _Trail, count: int) -> None:
        owner = trail.owner
        self._size -= count
        trail.live -= count
        owner.weight = max(owner.weight - count * self._scale(trail.seen), 0.0)
        if not trail.live:
            self._unlink(trail)
            owner.trails.discard(trail)
            if not owner.trails and not owner.gone:
                self._leave(owner)

    def _append(self, trail: _Trail) -> None:
        trail.older = self._newest
        if self._newest is None:
            self._oldest = trail
        else:
            self._newest.newer = trail
        self._newest = trail

    def _unlink(self, trail: _Trail) -> None:
        if trail.older is None:
            self._oldest = trail.newer
        else:
            trail.older.newer = trail.newer
        if trail.newer is None:
            self._newest = trail.older
        else:
            trail.newer.older = trail.older

    def _advance(self, now: float) -> float:
        self._latest = now = max(now, self._latest)
        if now - self._epoch > LONGEST_SCALE * self.limits.half_life:
            self._rescale(now)
        self._expire(now, IN_PASSING)
        return now

    def _expire(self, now: float, most: int) -> bool:
        """Drop about so many links that expired; True while there may be more."""
        while most > 0:
            trail = self._oldest
            if trail is None or now - trail.seen <= self.limits.ttl:
                return False
            most -= self._drop(trail)
        return True

    def _scale(self, seen: float) -> float:
        return float(2 ** ((seen - self._epoch) / self.limits.half_life))

    def _rescale(self, now: float) -> None:
        shrink = float(2 ** ((self._epoch - now) / self.limits.half_life))
        for owner in _owners(self._shelves.values()):
            owner.weight *= shrink
        self._epoch = now


def _take(
    entries: dict[int, _Trail], chain: Chain, trail: _Trail
) -> Iterator[tuple[_Trail, int, int]]:
    """Make every link ours; tells which trails lost which part of the chain."""
    past, start = None, 0
    for place, link in enumerate(chain):
        known = entries.get(link)
        entries[link] = trail
        if known is not past:
            if past is not None:
                yield past, start, place
            past, start = known, place
    if past is not None:
        yield past, start, len(chain)


def _owners(shelves: Iterable[_Shelf]) -> Iterator[_Owner]:
    return (owner for shelf in shelves for owner in shelf.owners.values())


def _coldest(shelf: _Shelf) -> tuple[UUID, ...]:
    return tuple([owner.seat.id for owner in sorted(shelf.owners.values(), key=_weight)])
