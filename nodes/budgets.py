"""VRAM budgets: stands in until the module with all notations is merged."""

from clustermgr.lib.errors import InvalidInput

UNITS = {"GIB": 2**30, "GB": 10**9, "": 1}


def resolve(text: str, total: int) -> int:
    """The ceiling in bytes that `text` sets on `total`; 0 is none."""
    word = text.strip().upper()
    if not word:
        return 0
    try:
        wanted = _percentage(word, total) if word.endswith("%") else _bytes(word)
    except ValueError as error:
        raise InvalidInput(f"vram_budget {text!r} is neither a percentage nor a size.") from error
    return min(wanted, total) if total else wanted


def _percentage(word: str, total: int) -> int:
    percent = int(word[:-1])
    if not 0 < percent <= 100:
        raise ValueError(word)
    return total * percent // 100


def _bytes(word: str) -> int:
    unit = next(unit for unit in UNITS if word.endswith(unit))
    number = int(word.removesuffix(unit))
    if number <= 0:
        raise ValueError(word)
    return number * UNITS[unit]
