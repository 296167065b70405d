"""The pick among replicas that may serve, as SQL does it: see the mirror tests of routing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import md5
from typing import NamedTuple
from uuid import UUID

from scheduling.prefixes.chains import Chain
from scheduling.prefixes.index import Match, Seat
from scheduling.prefixes.policies import Policy


class Candidate(NamedTuple):
    """A loaded replica of the current revision on a routable node."""

    seat: Seat
    in_flight: int = 0
    last_used: datetime | None = None
    available_vram: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the pick should prefer, in one statement's parameters."""

    hot: UUID | None = None  # has seen enough of the prompt
    abs: int = 2
    rel: float = 1.5
    # Who remembers something, least first. Those who are not in it come before, by node and slot.
    cold: tuple[UUID, ...] = ()
    share: float = 0.0  # of the prompt that `hot` has seen
    shadow: bool = False  # only to be counted: pick in the plain order

    def allows(self, in_flight: int, *, least: int) -> bool:
        """Whether a replica is not much busier than the idlest; the idlest always passes."""
        return in_flight <= least + self.abs and in_flight <= least * self.rel + 1


class Choice(NamedTuple):
    """Who gets the request, and why."""

    seat: Seat
    why: str
    pressure: bool = False  # somebody else has seen it, and is too busy


class Load(NamedTuple):
    """Requests in flight at the moment of a pick, before it counted itself."""

    chosen: int
    least: int  # of all candidates
    hot: int | None = None  # of the wish's `hot`; None: it is no candidate


def wish_of(match: Match | None, cold: tuple[UUID, ...], chain: Chain, policy: Policy) -> Wish:
    """Turn what is remembered into what a pick should prefer."""
    share = match.depth / len(chain) if match else 0.0
    enough = match is not None and share >= policy.min_match
    return Wish(
        hot=match.seat.id if match and enough else None,
        abs=policy.balance_abs,
        rel=policy.balance_rel,
        cold=cold,
        share=share if enough else 0.0,
        shadow=policy.shadow,
    )


def choose(candidates: Sequence[Candidate], wish: Wish | None) -> Choice | None:
    """Pick one; without a wish that counts in the plain order, and none where there is none."""
    if not candidates:
        return None
    if wish is None or wish.shadow:
        best = min(candidates, key=plain_order)
        return Choice(best.seat, f"It has the fewest requests in flight ({best.in_flight}).")
    least = min(one.in_flight for one in candidates)
    hot = next((one for one in candidates if one.seat.id == wish.hot), None)
    if hot is not None and wish.allows(hot.in_flight, least=least):
        return Choice(hot.seat, f"It has seen {wish.share:.0%} of this prompt.")
    rank = {replica: place for place, replica in enumerate(wish.cold)}
    allowed = (one for one in candidates if wish.allows(one.in_flight, least=least))
    best = min(allowed, key=lambda one: (rank.get(one.seat.id, -1), *one.seat[1:]))
    if hot is None:
        return Choice(best.seat, "Nobody has seen enough of this prompt; it remembers least.")
    why = f"Another has seen {wish.share:.0%} of this prompt and is too busy ({hot.in_flight} in "
    return Choice(best.seat, f"{why}flight, the idlest {least}); it remembers least.", True)


def choose_for_session(candidates: Sequence[Candidate], session: str, wish: Wish) -> Choice | None:
    """Pick who serves a session: the same one in every process, unless it is much busier."""
    if not candidates:
        return None
    least = min(one.in_flight for one in candidates)
    home = min(candidates, key=lambda one: _draw(session, one.seat.id))
    if wish.allows(home.in_flight, least=least):
        return Choice(home.seat, "It serves this session.")
    best = min(candidates, key=lambda one: (one.in_flight, *one.seat[1:]))
    busy = f"{home.in_flight} in flight, the idlest {least}"
    return Choice(best.seat, f"The one that serves this session is too busy ({busy}).", True)


def _draw(session: str, replica: UUID) -> str:
    """A lot that every process draws alike; few sessions move when a replica comes or goes."""
    return md5(f"{session}{replica}".encode(), usedforsecurity=False).hexdigest()


def plain_order(one: Candidate) -> tuple[int, float, int, UUID]:
    """Idlest, then unused for longest (which takes turns), then the most free memory."""
    used = one.last_used.timestamp() if one.last_used else float("-inf")
    return one.in_flight, used, -one.available_vram, one.seat.id
