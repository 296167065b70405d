"""Routing: the right replica at once, and a count that cannot leak.

Requests of one process for one model that come together are served together, by one statement.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db import connection
from django.utils import timezone

from clustermgr.lib.coalescing import Together
from scheduling.routing.asks import Ask, Lease
from scheduling.services import leasing, routeterms
from scheduling.services.leasing import Wanted
from scheduling.services.routeterms import TermsBook

Clock = Callable[[], datetime]


class Router:
    """One per process; every thread may use it."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._book = TermsBook()
        self._takes: Together[Ask, Lease | None] = Together(self.take)
        self._releases: Together[UUID, bool] = Together(self.release_all, at_most=256)

    def acquire(self, ask: Ask) -> Lease | None:
        """A lease on the best replica, or None when no replica can serve."""
        return self._takes.do(ask.group, ask)

    def release(self, lease: UUID) -> bool:
        """End a lease; False when it had ended before."""
        return self._releases.do(None, lease)

    def take(self, asks: Sequence[Ask]) -> list[Lease | None]:
        """A lease for each of one group's asks, in one statement."""
        now = self._clock()
        terms = self._book.of(asks[0].model, now=now, look=routeterms.look_up)
        return leasing.take([Wanted(ask=ask) for ask in asks], terms, now=now)

    def release_all(self, leases: Sequence[UUID]) -> list[bool]:
        """End many leases in one statement; which were live."""
        ended = leasing.release(leases)
        return [lease in ended for lease in leases]


@lru_cache(maxsize=1)
def default_router() -> Router:
    return Router(clock=timezone.now)
