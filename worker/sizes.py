"""Amounts of bytes, for people and from them."""

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Bytes: `24GB` counts in thousands, `24GiB` in 1024s, a bare number as it is."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError("must be a size such as 24GB, 512MiB or 1000000")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])


def size_in_words(count: int) -> str:
    """`512 B`, `412.0 MiB`."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{count} B" if amount == count else f"{amount:.1f} {units[0]}"
