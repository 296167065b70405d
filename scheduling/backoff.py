"""How long to wait after a failure: doubling, up to a bound. Pure."""

from datetime import timedelta

LONGEST = timedelta(minutes=5)
LOAD = timedelta(seconds=10)  # after a model's first failed load
STOP = timedelta(seconds=2)  # after a replica's first failed stop


def delay(failures: int, *, first: timedelta) -> timedelta:
    """The pause after so many failures in a row."""
    doublings: int = min(max(failures - 1, 0), 16)
    return min(first * (1 << doublings), LONGEST)
