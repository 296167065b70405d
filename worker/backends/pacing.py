"""Keeps downloads below a rate, all of one worker together."""

import threading
from datetime import timedelta

BURST = timedelta(milliseconds=250)


class Bucket:
    """A token bucket as one number: the time at which it would be full debt-free again.

    Pure: `now` is a monotonic clock that is passed in.
    """

    def __init__(self, bytes_per_second: int = 0) -> None:
        """0 means unlimited."""
        self._rate = bytes_per_second
        self._lock = threading.Lock()  # archives are read in threads
        self._paid_until: timedelta | None = None

    def take(self, count: int, *, now: timedelta) -> timedelta:
        """Account for `count` bytes; how long to wait before the next ones."""
        if not self._rate:
            return timedelta()
        earliest = now - BURST
        with self._lock:
            start = earliest if self._paid_until is None else max(self._paid_until, earliest)
            self._paid_until = start + timedelta(seconds=count / self._rate)
            return max(self._paid_until - now, timedelta())
