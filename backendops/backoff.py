"""How long a failed op waits. Pure."""

from datetime import timedelta

BASE = timedelta(seconds=30)
CAP = timedelta(minutes=15)
LIMIT = 10  # failures; then it is a dead letter
SHORTEST = timedelta(seconds=1)


def ceiling(attempts: int) -> timedelta:
    """30 s after the first failure, doubling, at most 15 minutes."""
    doublings: int = min(max(attempts, 1) - 1, 20)
    return min(BASE * (1 << doublings), CAP)


def delay(attempts: int, *, jitter: float) -> timedelta:
    """Full jitter: anywhere up to the ceiling, so that a thousand nodes do not come at once."""
    return max(SHORTEST, ceiling(attempts) * jitter)
