"""Figures as people read them."""

GIB = 2**30


def gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
