"""Which port a process gets. Pure: the time is passed in, sockets are somebody else's business."""

from dataclasses import dataclass
from datetime import timedelta

from worker.machine import Refused

QUARANTINE = timedelta(seconds=15)
RESERVATION = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    key: str  # "" for a port that was never ours: it may be had by anybody, later
    at: timedelta


class Ports:
    """A bounded range in which a key that comes back finds its old port.

    `now` is a monotonic clock: a corrected wall clock must not lock ports for hours. A released
    port rests first, so that nobody who still has the old address reaches the wrong model, and is
    then kept for its key for a while, unless nothing else is left.
    """

    def __init__(self, first: int, last: int) -> None:
        self._range = range(first, last + 1)
        self._fresh = first  # everything from here on was never used
        self._taken: dict[int, str] = {}
        self._released: dict[int, Released] = {}

    def take(self, key: str, *, now: timedelta) -> int:
        """The key's old port; else an unclaimed one; else a never used one; else a claimed one."""
        port = self._choose(key, now)
        if port == self._fresh:
            self._fresh += 1
        self._released.pop(port, None)
        self._taken[port] = key
        return port

    def release(self, port: int, *, now: timedelta) -> None:
        key = self._taken.pop(port, None)
        if key is not None:
            self._released[port] = Released(key=key, at=now)

    def avoid(self, port: int, *, now: timedelta) -> None:
        """Give back a port on which a stranger listens; it rests, and is nobody's afterwards."""
        if self._taken.pop(port, None) is not None:
            self._released[port] = Released(key="", at=now)

    def _choose(self, key: str, now: timedelta) -> int:
        rested = {
            port: released
            for port, released in sorted(self._released.items())
            if now - released.at >= QUARANTINE
        }
        for port, released in rested.items():
            if released.key == key:
                return port
        for port, released in rested.items():
            if not released.key or now - released.at >= RESERVATION:
                return port
        if self._fresh in self._range:
            return self._fresh
        for port in rested:
            return port
        first, last = self._range.start, self._range.stop - 1
        raise Refused(f"no free gRPC port in the range {first}-{last}")
