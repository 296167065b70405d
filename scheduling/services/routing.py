"""Routing: the right replica at once, and a count that cannot leak.

Requests of one process for one model that come together are served together, by one statement.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache, partial
from time import monotonic
from uuid import UUID

from django.conf import settings
from django.db import connection

from clustermgr.lib.coalescing import Together
from scheduling.prefixes.index import Seat
from scheduling.prefixes.policies import Policy
from scheduling.prefixes.selecting import Load, Wish
from scheduling.routing.asks import Ask, Lease
from scheduling.services import leasing, prefixing, routeterms
from scheduling.services.coldstart import Outlook, Wants
from scheduling.services.holding import Holding
from scheduling.services.leasing import Terms, Wanted
from scheduling.services.prefixing import Prefixes
from scheduling.services.routeterms import Standings

Clock = Callable[[], datetime]

LOOK_EVERY = 0.1  # seconds: so late a waiting request sees a replica that is ready
ASK_EVERY = 5  # looks: how its load stands, and whether there is one


class Router:
    """One per process; every thread may use it."""

    def __init__(self, *, clock: Clock, prefixes: Prefixes) -> None:
        self._clock = clock
        self._prefixes = prefixes
        self._standings = Standings(partial(routeterms.look_up, prefixes=prefixes))
        self._wants = Wants()
        self.holding = Holding(clock=clock)
        self._takes: Together[Ask, Lease | None] = Together(self.take)
        self._releases: Together[UUID, bool] = Together(self.release_all, at_most=256)

    def acquire(self, ask: Ask) -> Lease | None:
        """A lease on the best replica, or None when no replica can serve.

        In a transaction alone: others must get no lease that is rolled back with it.
        """
        if connection.in_atomic_block:
            return self.take([ask])[0]
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
        return self._wants.want(ask.model, revision=ask.revision, by=ask.holder, now=now)

    def release(self, lease: UUID) -> bool:
        """End a lease; False when it had ended before. In a transaction alone, as above."""
        if connection.in_atomic_block:
            return self.release_all([lease])[0]
        return self._releases.do(None, lease)

    def take(self, asks: Sequence[Ask]) -> list[Lease | None]:
        """A lease for each of one group's asks, in one statement."""
        now = self._clock()
        standing = self._standings.of(asks[0].model, now=now)
        wishes = [self._wish(ask, standing.policy, now=now) for ask in asks]
        terms = Terms(
            barred=standing.barred,
            busier=standing.policy.balance_abs,
            times_busier=standing.policy.balance_rel,
            cold=next((wish.cold for wish in wishes if wish), ()),
        )
        wanted = [_wanted(ask, wish) for ask, wish in zip(asks, wishes, strict=True)]
        leases = leasing.take(wanted, terms, now=now)
        for ask, wish, lease in zip(asks, wishes, leases, strict=True):
            if lease is not None and ask.chain and not ask.session:
                self._remember(ask, wish, lease, standing.policy, now=now)
        return leases

    def release_all(self, leases: Sequence[UUID]) -> list[bool]:
        """End many leases in one statement; which were live. One named twice was live once."""
        ended = leasing.release(leases)
        return [_taken_out(ended, lease) for lease in leases]

    def _wish(self, ask: Ask, policy: Policy, *, now: datetime) -> Wish | None:
        if ask.session or not ask.chain:
            return None
        return self._prefixes.wish_for(ask.model, ask.chain, policy, now=now)

    def _remember(
        self, ask: Ask, wish: Wish | None, lease: Lease, policy: Policy, *, now: datetime
    ) -> None:
        self._prefixes.record(
            ask.model,
            ask.chain,
            Seat(lease.replica, lease.node, lease.replica_index),
            policy=policy,
            wish=wish,
            load=Load(chosen=lease.load, least=lease.least, hot=lease.hot_load),
            now=now,
        )


def _taken_out(ended: set[UUID], lease: UUID) -> bool:
    live = lease in ended
    ended.discard(lease)
    return live


def _wanted(ask: Ask, wish: Wish | None) -> Wanted:
    if wish is None:
        return Wanted(ask=ask)
    return Wanted(ask=ask, hot=wish.hot, by_prefix=not wish.shadow)


@lru_cache(maxsize=1)
def default_router(*, clock: Clock) -> Router:
    """The one of this process."""
    return Router(clock=clock, prefixes=prefixing.default())


@contextmanager
def leased(
    model: str,
    *,
    by: str,
    clock: Clock,
    within: timedelta | None = None,
    ttl: timedelta | None = None,
) -> Iterator[Lease]:
    """A replica for the length of a block, for callers in this process.

    However long the block runs: `ttl` is how long the replica counts it after a crash.
    """
    router, cluster = default_router(clock=clock), settings.CLUSTER
    ask = Ask(model=model, holder=by, ttl=cluster.route_lease if ttl is None else ttl)
    lease = router.lease(ask, within=cluster.route_wait if within is None else within)
    try:
        with router.holding.held(lease, ttl=ask.ttl):
            yield lease
    finally:
        router.release(lease.id)


_never = threading.Event()


def _pause() -> None:
    if not connection.in_atomic_block:
        connection.close()
    _never.wait(LOOK_EVERY)
