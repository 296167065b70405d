"""Amounts of bytes in a worker's words."""

UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "PIB": 2**50}


def parse_size(text: str) -> int:
    """Bytes in a worker's words ("412.0 MiB"); 0 where they make no sense."""
    number, _, unit = text.strip().partition(" ")
    try:
        size = float(number) * UNITS[unit.strip().upper() or "B"]
    except (ValueError, KeyError):
        return 0
    return int(size) if 0 <= size < 2**62 else 0
