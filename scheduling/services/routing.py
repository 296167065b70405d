"""Routing: the right replica at once, and a count that cannot leak.

Requests of one process for one model that come together are served together, by one statement.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from time import monotonic
from uuid import UUID

from django.conf import settings
from django.db import connection

from clustermgr.lib.coalescing import Together
from scheduling.routing.asks import Ask, Lease
from scheduling.services import coldstart, leasing, routeterms
from scheduling.services.coldstart import Outlook
from scheduling.services.leasing import Wanted
from scheduling.services.routeterms import TermsBook

Clock = Callable[[], datetime]

LOOK_EVERY = 0.1  # seconds: so late a waiting request sees a replica that is ready
ASK_EVERY = 5  # looks: how its load stands, and whether there is one


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

    def lease(self, ask: Ask, *, within: timedelta) -> Lease:
        """A lease, after a load if it takes one; raises what stands in the way.

        Whoever waits holds no connection and starts no second load. It is the caller's patience
        that ends, never the load.
        """
        ends, looks = monotonic() + within.total_seconds(), 0
        while (lease := self.acquire(ask)) is None:
            if looks % ASK_EVERY == 0:
                outlook = self.want(ask)
            if monotonic() >= ends:
                raise outlook.given_up(ask.model, waited=within)
            looks += 1
            _pause()
        return lease

    def want(self, ask: Ask) -> Outlook:
        """What a request waits for that got nothing."""
        now = self._clock()
        return coldstart.want(ask.model, revision=ask.revision, by=ask.holder, now=now)

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
def default_router(*, clock: Clock) -> Router:
    """The one of this process."""
    return Router(clock=clock)


@contextmanager
def leased(
    model: str, *, by: str, clock: Clock, within: timedelta | None = None
) -> Iterator[Lease]:
    """A replica for the length of a block, for callers in this process."""
    router, cluster = default_router(clock=clock), settings.CLUSTER
    ask = Ask(model=model, holder=by, ttl=cluster.route_lease)
    lease = router.lease(ask, within=cluster.route_wait if within is None else within)
    try:
        yield lease
    finally:
        router.release(lease.id)


_never = threading.Event()


def _pause() -> None:
    if not connection.in_atomic_block:
        connection.close()
    _never.wait(LOOK_EVERY)
