"""What a decision says: data that can be printed, stored, or thrown away."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduling.states import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was thought of one node."""

    node: UUID
    name: str
    fits: bool
    why: str
    score: tuple[Any, ...] = ()

    def as_json(self) -> Mapping[str, Any]:
        return {
            "node": str(self.node),
            "name": self.name,
            "fits": self.fits,
            "why": self.why,
            "score": [float(part) for part in self.score],  # some are yes or no
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Load a replica there."""

    model: str
    revision: str
    node: UUID
    node_name: str
    index: int
    cause: Cause
    vram: int
    summary: str
    replaces: UUID | None = None  # the replica that goes when this one has come
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """Stop that replica."""

    replica: UUID
    model: str
    node: UUID
    node_name: str
    index: int
    cause: Cause
    reason: str
    gap: bool = False  # it goes before its replacement has come: worth a decision of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Give that load up."""

    job: int
    model: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """No old replica of that model is needed any more, as long as this is its revision."""

    model: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved:
    """A rule that cannot be kept: why, since when, and what would help."""

    model: str
    cause: Cause
    missing: int
    reason: str
    smallest_fix: str
    since: datetime
    until: datetime | None  # nobody tries before
    news: bool  # it has just lasted long enough to be told
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A rule that is short of replicas and waits for something that comes by itself."""

    model: str
    reason: str
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One tick's decisions."""

    place: tuple[Place, ...] = ()
    unload: tuple[Unload, ...] = ()
    cancel: tuple[Cancel, ...] = ()
    retire: tuple[Unload, ...] = ()  # busy: no new requests from now on, stopped when idle
    starved: tuple[Starved, ...] = ()
    held: tuple[Held, ...] = ()
    recovered: tuple[str, ...] = ()  # models whose rule was starved and is kept again
    rolled: tuple[Rolled, ...] = ()
