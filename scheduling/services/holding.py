"""Leases of blocks in this process: renewed for as long as the block runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from clustermgr.lib.rounds import Rounds
from scheduling.routing.asks import LEAST, Lease
from scheduling.services import leasing

SHARE = 3  # a lease is renewed when a third of its life is over: two rounds may fail


@dataclass(slots=True)
class _Held:
    ttl: timedelta
    due: datetime


class Holding:
    """One thread for all of them, as long as there is one. A crash ends it: they expire."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._held: dict[UUID, _Held] = {}
        self._rounds = Rounds(
            name="leases", every=LEAST / (2 * SHARE), needed=self._any, do=self._renew
        )

    @contextmanager
    def held(self, lease: Lease, *, ttl: timedelta) -> Iterator[None]:
        """Keep it from expiring as long as the block runs."""
        self._held[lease.id] = _Held(ttl, self._clock() + ttl / SHARE)
        self._rounds.start()
        try:
            yield
        finally:
            del self._held[lease.id]

    def _renew(self) -> None:
        now = self._clock()
        due = {lease: held for lease, held in [*self._held.items()] if held.due <= now}
        for ttl in {held.ttl for held in due.values()}:
            alike = {lease: held for lease, held in due.items() if held.ttl == ttl}
            leasing.renew([*alike], until=now + ttl)
            for held in alike.values():
                held.due = now + ttl / SHARE

    def _any(self) -> bool:
        return bool(self._held)
