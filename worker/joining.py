"""Getting in: register until the manager lets us, and again whenever it no longer knows us."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from worker.manager import Manager, ManagerError
from worker.wire.http import PENDING, Readings, Registered, Registration

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 2.0, 30.0  # seconds between two attempts
RETIRED = 300.0  # an operator said no; only an operator will say yes
GONE = 410

Read = Callable[[], Awaitable[Readings]]


@dataclass(frozen=True, slots=True)
class Joining:
    manager: Manager
    registration: Registration
    readings: Read

    async def once(self) -> Registered:
        """Register; ManagerError when we were not let in."""
        return await self.manager.register(self.registration.body(await self.readings()))

    async def until_known(self) -> Registered:
        """Register for as long as it takes."""
        attempt = 0
        while True:
            try:
                known = await self.once()
            except ManagerError as refusal:
                pause = self._pause_after(refusal, attempt)
                attempt += 1
                await asyncio.sleep(pause)
                continue
            log.info("registered", extra={"node": known.id, "status": known.status})
            return known

    async def until_let_in(self, known: Registered) -> Registered:
        """Ask again until an operator has approved us and we have credentials for NATS."""
        attempt = 0
        while known.status == PENDING or not known.credentials:
            if attempt == 0:
                log.info("waiting for approval", extra={"node": known.id, "status": known.status})
            await asyncio.sleep(_pace(known) or backoff(attempt))
            attempt += 1
            known = await self.until_known()
        return known

    def _pause_after(self, refusal: ManagerError, attempt: int) -> float:
        name = self.registration.name
        if refusal.status == GONE:
            log.error("retired: an operator must readmit this node", extra={"node_name": name})
            return RETIRED * random.uniform(0.8, 1.2)
        log.warning("not registered", extra={"node_name": name, "reason": str(refusal)})
        return max(refusal.retry_after, backoff(attempt))


def _pace(known: Registered) -> float:
    """What the manager wants, within reason; 0 when it does not say."""
    return min(max(known.ask_again_after, 0.0), RETIRED) * random.uniform(0.75, 1.25)


def backoff(attempt: int) -> float:
    """2, 4, 8, 16, 30, 30 ... seconds, with jitter: a thousand machines may start at once."""
    return min(LONGEST, SHORTEST * float(2 ** min(attempt, 10))) * random.uniform(0.75, 1.25)
