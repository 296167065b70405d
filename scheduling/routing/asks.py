"""A request's wish for a replica, and the claim it gets."""

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

LEAST, MOST = timedelta(seconds=1), timedelta(hours=1)


class How(enum.StrEnum):
    """Why it was this replica; the words of `route_take`."""

    PLAIN = "plain"  # the least busy
    PREFIX = "prefix"  # it has seen how this prompt begins
    SESSION = "session"  # it serves this session
    PREFIX_COLD = "prefix-cold"  # nobody has, or who has is too busy
    SESSION_COLD = "session-cold"  # who serves it is too busy


KNOWN = {
    How.PREFIX: "It has seen how this prompt begins",
    How.SESSION: "It serves this session",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request that wants a replica of `model`."""

    model: str
    holder: str
    ttl: timedelta
    chain: tuple[int, ...] = ()  # of its prompt: see scheduling.prefixes
    session: str = ""
    revision: str = ""  # the caller's idea of the model; empty: whatever is current
    excluded: frozenset[UUID] = field(default_factory=frozenset)  # replicas that just failed it

    @property
    def group(self) -> tuple[str, str, frozenset[UUID]]:
        """Asks that one statement can serve together."""
        return self.model, self.revision, self.excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A replica that counts this request until it is released or `expires_at` has come."""

    id: UUID
    model: str
    replica: UUID
    node: UUID
    node_name: str
    address: str
    replica_index: int
    revision: str
    expires_at: datetime
    how: How
    load: int  # requests it served already
    least: int  # requests of the least busy
    candidates: int
    missed: bool  # somebody fitted better, and was too busy
    hot_load: int | None = None  # requests of the one that knows the prompt, if it can serve

    @property
    def why(self) -> str:
        """Why this one, in a sentence."""
        busy = f"{self.load} in flight"
        if self.how in KNOWN:
            return f"{KNOWN[self.how]} ({busy}; the least busy has {self.least})."
        if self.how is How.PLAIN and self.candidates == 1:
            # A single plain pick looks at the others and does not count them
            return f"The least busy replica that can serve ({busy})."
        if self.candidates == 1:
            return f"The only replica that can serve ({busy})."
        least = "emptiest cache" if self.how is How.PREFIX_COLD else "fewest requests"
        words = f"Of {self.candidates} replicas the one with the {least} ({busy})"
        return f"{words}; the one that fits better is too busy." if self.missed else f"{words}."
