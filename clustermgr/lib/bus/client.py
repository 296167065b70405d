"""nats-py's client with the manners it lacks; pinned in requirements.txt, tested in tests/contract.

It overrides two methods of nats-py that are not public. Each has a test that fails without it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

GOODBYE = 1.0  # seconds; a vanished peer would keep the TLS farewell waiting for thirty

Hear = Callable[[Msg], object]


class StrictClient(Client):
    """Hears in the order of arrival, confirms what it says it confirms, and keeps secrets."""

    def __init__(self, *, encrypt: bool) -> None:
        super().__init__()
        self._encrypt = encrypt
        self._hearers: dict[int, Hear] = {}

    async def listen(self, subject: str, hear: Hear) -> Subscription:
        """Call `hear` for every message on `subject`; it must neither wait nor raise."""
        subscription = await self.subscribe(subject)
        self._hearers[subscription._id] = hear
        return subscription

    async def forget(self, subscription: Subscription) -> None:
        """Undo `listen`; on a dead connection there is nothing left to undo."""
        self._hearers.pop(subscription._id, None)
        with suppress(errors.Error):
            await subscription.unsubscribe()

    async def settle(self) -> bool:
        """Wait until the server has processed all that was sent; never cancel this.

        The PONG that answers a cancelled flush kills nats-py's reader, silently.
        """
        try:
            # Twice: the PING is written past the buffer, where our message may still sit behind
            # a large one. The first PONG proves that it was written, the second that it was read.
            await self.flush()
            await self.flush()
        except errors.Error:
            await self.hang_up()  # a flush that timed out was cancelled, see above
        return self.is_connected

    async def hang_up(self) -> None:
        """Close what is left of the connection; how well that goes does not matter any more."""
        with suppress(OSError, errors.Error):
            async with asyncio.timeout(GOODBYE):
                await self.close()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> None:
        # nats-py has a queue and a task for each subscription, so that an event and the answer
        # behind it can swap places. Returning nothing ends the message's way here.
        if hear := self._hearers.get(sid):
            hear(super()._build_message(sid, subject, reply, data, headers))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # nats-py encrypts only if the server asks for it, whatever we were told to do. The first
        # INFO comes before the password goes out.
        if initial_connection and self._encrypt:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise errors.SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
