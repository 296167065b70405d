"""What this process is at: one thread keeps all its claims alive and writes all its progress.

Two hundred waiting threads would otherwise each need a connection, and a thousand nodes that
tell four times a second would be four thousand statements.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from django.conf import settings
from django.db import connection

from backendops import statements
from backendops.models import PendingBackendOp
from clustermgr.lib.rounds import Rounds
from clustermgr.lib.sizes import parse_size
from nodes.wire import InstallProgress

log = logging.getLogger(__name__)

FLUSH_EVERY = timedelta(seconds=1)
SMOOTHING = 0.3  # of a rate: how much the newest reading counts


@dataclass(slots=True, kw_only=True)
class _Held:
    """One claim, and what was last heard of it."""

    fence: int
    tick: InstallProgress | None = None  # not written yet
    rate: float = 0.0
    measured_at: float = 0.0
    measured_bytes: int = 0


class Desk:
    """Thread-safe; its own thread runs as long as something is held."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        self.clock = clock  # the process edge's: what is held is held for minutes
        self.name = f"{socket.gethostname()}:{os.getpid()}"[:64]
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._renewed = monotonic()
        self._rounds = Rounds(name="desk", every=FLUSH_EVERY, needed=self._busy, do=self._look)

    @contextmanager
    def holding(self, op: PendingBackendOp) -> Iterator[None]:
        """Keep the claim alive inside. What was told in the last second is not written any more:
        by then the op is settled, and how it ended says more."""
        with self._lock:
            self._held[op.pk] = _Held(fence=op.fence)
        self._rounds.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(op.pk, None)

    def tell(self, op_id: int, tick: InstallProgress) -> None:
        """Remember the newest reading; it is written within a second, with all the others."""
        with self._lock:
            if held := self._held.get(op_id):
                held.tick = tick
                _measure(held, parse_size(tick.current), at=monotonic())

    def write_progress(self, *, now: datetime) -> int:
        """Write what was told since the last time, in one statement for all ops together."""
        with self._lock:
            told = {
                op_id: (held, held.tick)
                for op_id, held in self._held.items()
                if held.tick is not None
            }
            for held, _ in told.values():
                held.tick = None
        if not told:
            return 0
        ticks = [tick for _, tick in told.values()]
        with connection.cursor() as cursor:
            cursor.execute(
                statements.PROGRESS,
                {
                    "now": now,
                    "ids": list(told),
                    "fences": [held.fence for held, _ in told.values()],
                    "phases": [tick.phase for tick in ticks],
                    "files": [tick.file_name[:255] for tick in ticks],
                    "currents": [parse_size(tick.current) for tick in ticks],
                    "totals": [parse_size(tick.total) for tick in ticks],
                    "percentages": [tick.percentage for tick in ticks],
                    "seqs": [tick.seq for tick in ticks],
                    "rates": [held.rate for held, _ in told.values()],
                },
            )
        return len(told)

    def renew(self, *, now: datetime) -> None:
        """Hold what we hold for another lease; what was taken from us is let go."""
        with self._lock:
            held = {op_id: claim.fence for op_id, claim in self._held.items()}
        if not held:
            return
        until = now + settings.CLUSTER.op_lease
        with connection.cursor() as cursor:
            cursor.execute(
                statements.RENEW,
                {"until": until, "ids": list(held), "fences": list(held.values())},
            )
            kept = {row[0] for row in cursor.fetchall()}
        if lost := held.keys() - kept:
            log.debug("claims are no longer ours", extra={"ops": sorted(lost)})

    def _look(self) -> None:
        now = self.clock()
        self.write_progress(now=now)
        if monotonic() - self._renewed >= settings.CLUSTER.op_lease.total_seconds() / 4:
            self.renew(now=now)
            self._renewed = monotonic()

    def _busy(self) -> bool:
        with self._lock:
            return bool(self._held)


def _measure(held: _Held, size: int, *, at: float) -> None:
    """Bytes a second, smoothed; a new file starts the measurement anew."""
    if size < held.measured_bytes or not held.measured_at:
        held.measured_at, held.measured_bytes = at, size
        return
    passed = at - held.measured_at
    if passed < FLUSH_EVERY.total_seconds() / 2:
        return
    latest = (size - held.measured_bytes) / passed
    held.rate = latest if not held.rate else held.rate + SMOOTHING * (latest - held.rate)
    held.measured_at, held.measured_bytes = at, size


_DESKS: dict[int, Desk] = {}


def default_desk(*, clock: Callable[[], datetime]) -> Desk:
    """The desk of this process; a fork gets its own."""
    pid = os.getpid()
    return _DESKS.get(pid) or _DESKS.setdefault(pid, Desk(clock=clock))
