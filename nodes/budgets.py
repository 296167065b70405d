"""How much of a node's VRAM we may use: `80%`, `0.8`, `12GB`, `12GiB`, bytes; pure."""

import re
from dataclasses import dataclass
from decimal import Decimal

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import shown

MAX_TEXT = 32
LARGEST = 2**64 - 1  # what a worker can report

_SHAPE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|[KMGT]i?B|B)?", re.IGNORECASE)
_STEPS = "kmgt"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """Either a share of the total or a number of bytes."""

    share: Decimal | None = None
    count: Decimal = Decimal(0)

    def of(self, total: int) -> int:
        if self.share is None:
            return self._whole(self.count)
        return self._whole(self.share * total)

    @staticmethod
    def _whole(bytes_: Decimal) -> int:
        # Zero means "no cap", so a cap below one byte must not be rounded down to it.
        return max(int(bytes_), 1) if bytes_ else 0


def resolve(text: str, total: int) -> int:
    """The ceiling in bytes that `text` puts on `total` raw bytes; 0: none.

    A share of an unknown total (0) is no ceiling yet: it resolves when the total is known.
    """
    ceiling = _parse(text).of(total)
    return min(ceiling, total) if total > 0 else ceiling


def cap(available: int, *, ceiling: int) -> int:
    """What of `available` may be used. Capping twice is capping once."""
    return min(available, ceiling) if ceiling else available


def _parse(text: str) -> _Amount:
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"A VRAM budget has at most {MAX_TEXT} characters.")
    stripped = text.strip()
    if not stripped:
        return _Amount()
    found = _SHAPE.fullmatch(stripped)
    if found is None:
        raise InvalidInput(
            f"{shown(text)} is no VRAM budget; write 80%, 0.8, 12GB, 12GiB or a number of bytes."
        )
    return _amount(Decimal(found[1]), (found[2] or "").lower(), text)


def _amount(number: Decimal, unit: str, text: str) -> _Amount:
    if unit == "%":
        return _share(number / 100, text)
    if not unit and number <= 1:
        return _share(number, text)
    if not unit and number % 1:
        raise InvalidInput(f"{shown(text)} is no whole number of bytes; shares are at most 1.")
    count = number * scale(unit)
    if count > LARGEST:
        raise InvalidInput(f"{shown(text)} is more memory than any node can report.")
    return _Amount(count=count)


def _share(share: Decimal, text: str) -> _Amount:
    if share > 1:
        raise InvalidInput(f"{shown(text)} is more than all of the VRAM.")
    return _Amount(share=share)


def scale(unit: str) -> int:
    """Bytes in one `unit`, in lower case: 1000 in a kb, 1024 in a kib."""
    if unit in ("", "b"):
        return 1
    base = 1024 if "i" in unit else 1000
    return int(base ** (_STEPS.index(unit[0]) + 1))
