"""Routing for an event loop: what comes while a statement is under way goes into the next one.

This is how a web process routes. Threads have `Router`, which is underneath.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from clustermgr.lib.coalescing import TogetherAsync
from clustermgr.lib.errors import DomainError
from clustermgr.lib.offloop import aside, off_loop
from scheduling.routing.asks import Ask, Lease
from scheduling.services.coldstart import Outlook
from scheduling.services.routing import ASK_EVERY, LOOK_EVERY, Router

Awaited = asyncio.Future[Any]


class CallerLeft(Exception):
    """Nobody is there any more to be answered."""


class Stopping(DomainError):
    """This process ends; another one, or its successor, answers the same request."""

    code = "stopping"
    http_status = 503
    retry_after = 1


class LoopRouter:
    """One per loop; every task may use it."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._takes: TogetherAsync[Ask, Lease | None] = TogetherAsync(
            self._take, at_most=64, unclaimed=self._give_back
        )
        self._wants: TogetherAsync[Ask, Outlook] = TogetherAsync(self._want)
        self._stopping = False
        self._releases: TogetherAsync[UUID, bool] = TogetherAsync(self._release)

    async def acquire(self, ask: Ask) -> Lease | None:
        """A lease on the best replica, or None when no replica can serve."""
        return await self._takes.do(ask.group, ask)

    async def release(self, lease: UUID) -> bool:
        """End a lease; False when it had ended before."""
        return await self._releases.do(None, lease)

    def stop(self) -> None:
        """Send everybody away who waits for a load: the process would have to wait with them."""
        self._stopping = True

    async def wait_for(
        self, ask: Ask, *, within: timedelta, leaving: asyncio.Future[None]
    ) -> Lease:
        """A lease on what is being loaded; raises what stands in the way.

        Look again and again, also while it is asked how the load stands: that question may stand
        behind other models' plans. Who leaves meanwhile holds nothing.
        """
        ends, outlook = monotonic() + within.total_seconds(), None
        asking, looks = self._asked(ask), 0
        try:
            while True:
                awaited: list[Awaited] = [leaving] if asking.done() else [leaving, asking]
                await asyncio.wait(awaited, timeout=LOOK_EVERY, return_when="FIRST_COMPLETED")
                if asking.done():
                    outlook, looks = asking.result(), looks + 1
                if lease := await self._acquire(ask, leaving):
                    return lease
                if self._stopping:
                    raise Stopping("This server is being restarted; ask again.")
                if outlook is not None and monotonic() >= ends:
                    raise await off_loop(outlook.given_up, ask.model, waited=within)
                if looks > ASK_EVERY:
                    asking, looks = self._asked(ask), 0
        finally:
            asking.cancel()

    def _asked(self, ask: Ask) -> asyncio.Task[Outlook]:
        asking = asyncio.create_task(self._wants.do((ask.model, ask.revision), ask))
        asking.add_done_callback(_heard)
        return asking

    async def _acquire(self, ask: Ask, leaving: asyncio.Future[None]) -> Lease | None:
        lease = None if leaving.done() else await self.acquire(ask)
        if leaving.done():
            if lease is not None:
                await self.release(lease.id)
            raise CallerLeft
        return lease

    def _give_back(self, lease: Lease | None) -> None:
        if lease is not None:
            self._releases.put(None, lease.id)

    async def _take(self, asks: Sequence[Ask]) -> Sequence[Lease | None]:
        return await off_loop(self._router.take, asks)

    async def _want(self, asks: Sequence[Ask]) -> Sequence[Outlook]:
        return [await aside(self._router.want, asks[0])] * len(asks)

    async def _release(self, leases: Sequence[UUID]) -> Sequence[bool]:
        return await off_loop(self._router.release_all, leases)


def _heard(asking: asyncio.Task[Outlook]) -> None:
    """Who has left does not hear a refusal: that is no fault for the log."""
    if not asking.cancelled():
        asking.exception()
