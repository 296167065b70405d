"""Reasons to keep work away from a node, and the work that comes all the same; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import check_key, check_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Work that does not tolerate `key=value` suffers `effect` (states.TaintEffect)."""

    key: str
    value: str = ""
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """What a model puts up with. `None` stands for anything, so `Toleration()` bears it all."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def covers(self, taint: Taint) -> bool:
        return (
            self.key in (None, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )


def untolerated(taints: Iterable[Taint], *, tolerations: Iterable[Toleration]) -> list[Taint]:
    """The taints that nothing covers, in their own order; empty: welcome."""
    accepted = list(tolerations)
    return [taint for taint in taints if not any(one.covers(taint) for one in accepted)]


def check_taint(taint: Taint, *, effects: Iterable[str]) -> Taint:
    """`taint`, if a node may carry it."""
    check_key(taint.key)
    check_value(taint.value)
    if taint.effect not in effects:
        raise InvalidInput(f"A taint's effect is one of {', '.join(effects)}.")
    return taint
