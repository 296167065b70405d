"""Whether and how long a failed op waits. Pure."""

import re
from datetime import timedelta

BASE = timedelta(seconds=30)
CAP = timedelta(minutes=15)
LIMIT = 10  # failures; then it is a dead letter
SHORTEST = timedelta(seconds=1)
# Our workers' words and LocalAI's for a name that every gallery was read for. More words after
# it tell of a gallery that could not be read, and that may pass.
NOWHERE = re.compile(r"no gallery has a backend '[^']*'|no backend found with name \"[^\"]*\"")


def can_pass(error: str) -> bool:
    """Whether waiting may help; what no gallery has is nobody's to mend but the operator's."""
    return NOWHERE.fullmatch(error.strip()) is None


def ceiling(attempts: int) -> timedelta:
    """30 s after the first failure, doubling, at most 15 minutes."""
    doublings: int = min(max(attempts, 1) - 1, 20)
    return min(BASE * (1 << doublings), CAP)


def delay(attempts: int, *, jitter: float) -> timedelta:
    """Full jitter: anywhere up to the ceiling, so that a thousand nodes do not come at once."""
    return max(SHORTEST, ceiling(attempts) * jitter)
