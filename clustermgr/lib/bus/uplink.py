"""The NATS connection of one process, kept up for ever; everything here runs on its loop."""

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nats import errors
from nats.aio.subscription import Subscription

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import dialling
from clustermgr.lib.bus.client import Hear, StrictClient
from clustermgr.lib.errors import NotConnected

log = logging.getLogger(__name__)

SHORTEST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 2.0
LOOK_EVERY = 1.0

EXPECTED = (OSError, errors.Error)  # refused, no such file, bad certificate, bad password


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStatus:
    """What /readyz tells about the bus; `reason` is empty while connected."""

    connected: bool
    since: datetime
    reason: str


@dataclass(eq=False, slots=True)
class Ear:
    """A subscription that outlives the connection it was made on."""

    subject: str
    hear: Hear
    on: tuple[StrictClient, Subscription] | None = None

    async def open(self, client: StrictClient) -> None:
        self.on = client, await client.listen(self.subject, self.hear)

    async def close(self) -> None:
        if self.on:
            client, subscription = self.on
            await client.forget(subscription)


class Uplink:
    """Whichever connection is up, and the bringing up of the next one."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self.ears: set[Ear] = set()  # opened again on every new connection
        self.status = BusStatus(connected=False, since=datetime.now(UTC), reason="connecting")
        self._cluster = cluster
        self._client: StrictClient | None = None
        self._up = asyncio.Event()
        self._trouble: Exception | None = None

    async def client(self, *, patience: float) -> StrictClient:
        """The connected client, or NotConnected when none comes up within `patience` seconds."""
        if not self._up.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._up.wait()
        if self._client is None or not self._client.is_connected:
            raise NotConnected(f"We are cut off from NATS ({self.status.reason}).")
        return self._client

    async def keep(self) -> None:
        """Stay connected until cancelled: whatever goes wrong, pause and dial again."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_leftover)
        failures = 0
        try:
            while True:
                began = loop.time()
                await self._one_connection_without_crash()
                # A server that takes us and drops us at once is failing, too.
                failures = 0 if loop.time() - began > LONGEST_PAUSE else failures + 1
                await asyncio.sleep(_pause(failures))
        finally:
            self.status = BusStatus(connected=False, since=datetime.now(UTC), reason="closed")

    async def _one_connection_without_crash(self) -> None:
        try:
            await self._one_connection()
        except EXPECTED as error:
            self._became(connected=False, reason=in_words(error))
        except Exception as error:  # edge: dialling must not end, not even by a bug
            if in_words(error) != self.status.reason:  # once, not at every attempt
                log.exception("bus connection crashed")
            self._became(connected=False, reason=in_words(error))

    async def _one_connection(self) -> None:
        """Dial, serve, and raise what ended it."""
        self._trouble = None
        closed = asyncio.Event()
        try:
            client = await dialling.dial(self._cluster, on_error=self._on_error, closed=closed)
        except errors.NoServersError as error:  # says less than the trouble that led to it
            raise self._trouble or error from None
        try:
            await self._adopt(client)
            await _gone(client, closed)
            raise ConnectionError(in_words(client.last_error or errors.UnexpectedEOF()))
        finally:
            self._client = None
            self._up.clear()
            await client.hang_up()

    async def _adopt(self, client: StrictClient) -> None:
        for ear in self.ears.copy():
            await ear.open(client)
        self._client = client
        self._up.set()
        self._became(connected=True, reason="")

    async def _on_error(self, error: Exception) -> None:
        self._trouble = error
        if self._up.is_set():
            log.warning("nats reported an error", extra={"reason": in_words(error)})

    def _became(self, *, connected: bool, reason: str) -> None:
        before = self.status
        if (before.connected, before.reason) == (connected, reason):
            return
        since = before.since if before.connected == connected else datetime.now(UTC)
        self.status = BusStatus(connected=connected, since=since, reason=reason)
        if connected:
            log.info("bus connected")
        else:
            log.warning("bus not connected", extra={"reason": reason})


async def _gone(client: StrictClient, closed: asyncio.Event) -> None:
    # We look as well: nats-py skips the callback when its last write fails, and delays it for
    # as long as a TLS farewell takes.
    while client.is_connected and not closed.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await closed.wait()


def _leftover(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # nats-py's reader dies of its own last write when the server resets the connection.
    error = context.get("exception")
    level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
    log.log(level, "bus left an exception behind", exc_info=error)


def _pause(failures: int) -> float:
    # Jitter, so that a restarted server does not meet all its clients at the same instant.
    growing = SHORTEST_PAUSE * float(2 ** min(failures, 10))
    return min(LONGEST_PAUSE, growing) * random.uniform(0.5, 1.0)


def in_words(error: Exception) -> str:
    """What the error says, or its name where it says nothing."""
    return str(error).removeprefix("nats: ") or type(error).__name__
