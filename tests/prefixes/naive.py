"""The index as the specification tells it: a tree whose every node knows who came last. Slow."""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import NAMESPACE_OID, UUID, uuid5

from scheduling.prefixes.chains import Chain
from scheduling.prefixes.index import Limits, Match, Seat

Path = tuple[int, ...]


def ident(word: str) -> UUID:
    return uuid5(NAMESPACE_OID, word)


def seat(node: str, index: int = 0, *, life: int = 0) -> Seat:
    """A replica in a slot; another life is another process there."""
    return Seat(ident(f"{node}/{index}/{life}"), ident(node), index)


def links(text: str) -> Chain:
    """A chain of one link per letter, each standing for all letters so far."""
    return tuple(int.from_bytes(text[: end + 1].encode(), "big") for end in range(len(text)))


@dataclass(slots=True)
class Seen:
    seat: Seat
    at: float
    told: float


@dataclass(slots=True)
class Tree:
    limits: Limits
    models: dict[str, dict[Path, Seen]] = field(default_factory=dict)
    now: float = 0.0

    def advance(self, now: float) -> None:
        self.now = max(self.now, now)
        self.keep(lambda model, seen: self.now - seen.at <= self.limits.ttl)

    def record(self, model: str, chain: Chain, seat: Seat, *, heard: bool = False) -> bool:
        if not chain:
            return False
        slot, id_ = seat[1:], seat.id
        self.keep(lambda m, seen: m != model or seen.seat[1:] != slot or seen.seat.id == id_)
        known = self.models.setdefault(model, {})
        last = known.get(chain)
        again = last is not None and last.seat == seat
        fresh = not again or (last is not None and self.now - last.told > self.limits.refresh)
        told = self.now if heard or fresh or last is None else last.told
        for depth in range(1, len(chain) + 1):
            known[chain[:depth]] = Seen(seat, self.now, told)
        return fresh

    def match(self, model: str, chain: Chain) -> Match | None:
        known = self.models.get(model, {})
        for depth in range(len(chain), 0, -1):
            if seen := known.get(chain[:depth]):
                return Match(seen.seat, depth)
        return None

    def weights(self, model: str) -> dict[Seat, float]:
        found: dict[Seat, float] = {}
        for seen in self.models.get(model, {}).values():
            worth = 0.5 ** ((self.now - seen.at) / self.limits.half_life)
            found[seen.seat] = found.get(seen.seat, 0.0) + worth
        return found

    def keep(self, wanted: Callable[[str, Seen], bool]) -> None:
        kept = {
            model: {path: seen for path, seen in known.items() if wanted(model, seen)}
            for model, known in self.models.items()
        }
        self.models = {model: known for model, known in kept.items() if known}

    def __len__(self) -> int:
        return sum(map(len, self.models.values()))
