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

    @property
    def why(self) -> str:
        """Why this one, in a sentence."""
        busy = f"{self.load} in flight"
        match self.how:
            case How.PREFIX:
                return f"It has seen how this prompt begins ({busy}, the least busy has {self.least})."
            case How.SESSION:
                return f"It serves this session ({busy}, the least busy has {self.least})."
            case _ if self.candidates == 1:
                return f"The only replica that can serve ({busy})."
        reason = f"The least busy of {self.candidates} ({busy})"
        if self.how is How.PREFIX_COLD:
            reason = f"The one with the emptiest cache among the less busy of {self.candidates} ({busy})"
        return f"{reason}; the one that fits better is too busy." if self.missed else f"{reason}."
