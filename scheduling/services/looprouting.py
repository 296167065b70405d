"""Routing for an event loop: what comes while a statement is under way goes into the next one.

This is how a web process routes. Threads have `Router`, which is underneath.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from uuid import UUID

from clustermgr.lib.coalescing import TogetherAsync
from clustermgr.lib.offloop import off_loop
from scheduling.routing.asks import Ask, Lease
from scheduling.services.coldstart import Outlook
from scheduling.services.routing import ASK_EVERY, LOOK_EVERY, Router


class CallerLeft(Exception):
    """Nobody is there any more to be answered."""


class LoopRouter:
    """One per loop; every task may use it."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._takes: TogetherAsync[Ask, Lease | None] = TogetherAsync(self._take, at_most=64)
        self._wants: TogetherAsync[Ask, Outlook] = TogetherAsync(self._want)
        self._releases: TogetherAsync[UUID, bool] = TogetherAsync(self._release)

    async def acquire(self, ask: Ask) -> Lease | None:
        """A lease on the best replica, or None when no replica can serve."""
        return await self._takes.do(ask.group, ask)

    async def release(self, lease: UUID) -> bool:
        """End a lease; False when it had ended before."""
        return await self._releases.do(None, lease)

    async def wait_for(
        self, ask: Ask, *, within: timedelta, leaving: asyncio.Future[None]
    ) -> Lease:
        """A lease on what is being loaded; raises what stands in the way.

        Look again and again; who leaves meanwhile holds nothing.
        """
        ends, looks = monotonic() + within.total_seconds(), 0
        while True:
            if looks % ASK_EVERY == 0:
                outlook = await self._wants.do((ask.model, ask.revision), ask)
            lease = await self.acquire(ask)
            if leaving.done():
                if lease is not None:
                    await self.release(lease.id)
                raise CallerLeft
            if lease is not None:
                return lease
            if monotonic() >= ends:
                raise await off_loop(outlook.given_up, ask.model, waited=within)
            looks += 1
            await asyncio.wait([leaving], timeout=LOOK_EVERY)

    async def _take(self, asks: Sequence[Ask]) -> Sequence[Lease | None]:
        return await off_loop(self._router.take, asks)

    async def _want(self, asks: Sequence[Ask]) -> Sequence[Outlook]:
        return [await off_loop(self._router.want, asks[0])] * len(asks)

    async def _release(self, leases: Sequence[UUID]) -> Sequence[bool]:
        return await off_loop(self._router.release_all, leases)
