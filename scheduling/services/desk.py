"""The loads this process is at: one thread keeps all claims alive and writes all progress."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from clustermgr.lib.rounds import Rounds
from clustermgr.lib.sizes import parse_size
from nodes.wire import InstallProgress
from scheduling import statements
from scheduling.models import LoadJob

EVERY = timedelta(seconds=1)
STALL = timedelta(minutes=5)  # whoever moves gets so much more time
AT_MOST = timedelta(hours=24)  # from the job's creation


@dataclass(slots=True, kw_only=True, eq=False)
class Claim:
    """One job held by one thread; `lost` once somebody took it away."""

    job_id: int
    fence: int
    lost: threading.Event = field(default_factory=threading.Event)
    tick: InstallProgress | None = None  # not written yet

    def tell(self, tick: InstallProgress) -> None:
        """Remember the newest reading; it is written within a second, with all the others."""
        self.tick = tick


class Desk:
    """Thread-safe; its own thread runs as long as something is held."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"[:64]
        self._clock = clock
        self._held: dict[int, Claim] = {}
        self._lock = threading.Lock()
        self._rounds = Rounds(name="loads", every=EVERY, needed=self._busy, do=self._look)

    @contextmanager
    def holding(self, job: LoadJob) -> Iterator[Claim]:
        """Keep the claim alive inside."""
        claim = Claim(job_id=job.pk, fence=job.fence)
        with self._lock:
            self._held[job.pk] = claim
        self._rounds.start()
        try:
            yield claim
        finally:
            with self._lock:
                self._held.pop(job.pk, None)

    def flush(self, claim: Claim) -> None:
        """Write what was told last, before the job goes on: afterwards it would be late."""
        self._write([claim], now=self._clock())

    def renew(self, *, now: datetime) -> None:
        """Hold what we hold for another lease; what was taken from us is told so."""
        with self._lock:
            claims = list(self._held.values())
        with connection.cursor() as cursor:
            cursor.execute(
                statements.RENEW,
                {
                    "until": now + settings.CLUSTER.load_lease,
                    "ids": [claim.job_id for claim in claims],
                    "fences": [claim.fence for claim in claims],
                },
            )
            kept = {job_id for (job_id,) in cursor.fetchall()}
        for claim in claims:
            if claim.job_id not in kept:
                claim.lost.set()

    def _look(self) -> None:
        now = self._clock()
        with self._lock:
            claims = list(self._held.values())
        self._write(claims, now=now)
        self.renew(now=now)

    def _write(self, claims: list[Claim], *, now: datetime) -> None:
        told = [(claim, claim.tick) for claim in claims if claim.tick]
        rows = [(claim, tick) for claim, tick in told if tick]
        for claim, _ in rows:
            claim.tick = None
        if not rows:
            return
        with connection.cursor() as cursor:
            cursor.execute(
                statements.PROGRESS,
                {
                    "now": now,
                    "until": now + STALL,
                    "at_most": f"{AT_MOST.total_seconds()} seconds",
                    "ids": [claim.job_id for claim, _ in rows],
                    "fences": [claim.fence for claim, _ in rows],
                    "phases": [tick.phase[:32] for _, tick in rows],
                    "currents": [parse_size(tick.current) for _, tick in rows],
                    "totals": [parse_size(tick.total) for _, tick in rows],
                    "percentages": [min(max(tick.percentage, 0.0), 100.0) for _, tick in rows],
                },
            )

    def _busy(self) -> bool:
        with self._lock:
            return bool(self._held)


_DESKS: dict[int, Desk] = {}


def default_desk(*, clock: Callable[[], datetime]) -> Desk:
    """The desk of this process; a fork gets its own."""
    pid = os.getpid()
    return _DESKS.get(pid) or _DESKS.setdefault(pid, Desk(clock=clock))
