"""The NATS connection of one node, kept up for ever, and the commands that come over it.

nats-py's own reconnect gives up for good once the server says no, as it does when a JWT
expires, and sends minutes late what it buffered while it was cut off. So a connection is used
once, and then we dial again with whatever credentials there are by then.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from nats import errors
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg

from worker.commands.desk import Handle
from worker.wire import subjects
from worker.wire.credentials import Credentials

log = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 15.0  # seconds between two attempts
LOOK_EVERY = 5.0  # seconds; nats-py sometimes forgets to say that it closed
GOODBYE = 2.0
PATIENCE = 30.0  # seconds that an answer waits for a connection to leave by
AT_ONCE = 64  # commands of one kind; more wait in the connection's own buffers
EXPECTED = (OSError, errors.Error, ValueError)

BEHAVIOUR: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "connect_timeout": 5,
    "ping_interval": 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where NATS is and how to prove who we are, unless the manager gave us credentials."""

    url: str = field(repr=False)  # may carry a password
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def encrypted(self) -> bool:
        return bool(self.ca or self.cert) or any(url.startswith("tls:") for url in self.servers)

    @property
    def servers(self) -> list[str]:
        """Without the secrets, so that no message can repeat them."""
        parts = [urlsplit(url.strip()) for url in self.url.split(",")]
        return [f"{part.scheme}://{part.netloc.rpartition('@')[2]}" for part in parts]

    @property
    def names_user(self) -> bool:
        return urlsplit(self.url.split(",")[0].strip()).username is not None

    def options(self, credentials: Credentials | None) -> dict[str, Any]:
        options: dict[str, Any] = {"servers": self.servers, "tls": self._context()}
        if credentials:
            return {**options, "user_credentials": RawCredentials(credentials.file())}
        first = urlsplit(self.url.split(",")[0].strip())
        if first.username is None:
            return options
        if first.password is None:
            return {**options, "token": unquote(first.username)}
        return {
            **options,
            "user": unquote(first.username),
            "password": unquote(first.password),
        }

    def _context(self) -> ssl.SSLContext | None:
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context


class Guarded(Client):
    """nats-py encrypts only if the server asks for it; one that was told to must insist."""

    def __init__(self, *, encrypt: bool) -> None:
        super().__init__()
        self._encrypt = encrypt

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._encrypt:  # before any secret leaves the house
            offered = info.get("tls_required") or info.get("tls_available")
            if not offered:
                raise errors.SecureConnWantedError
            info = {**info, "tls_required": True}
        await super()._process_info(info, initial_connection)


class Link:
    """One node's ear and voice."""

    def __init__(
        self, address: Address, *, node_id: str, credentials: Callable[[], Credentials | None]
    ) -> None:
        self.node_id = node_id
        self.refused = asyncio.Event()  # the server does not want us with what we have
        self.trouble = ""  # what ended the last connection
        self.deaf = False  # hears and does not answer: a machine that hangs
        self._address = address
        self._credentials = credentials
        self._client: Guarded | None = None
        self._up = asyncio.Event()
        self._hurry = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()
        self._trouble: Exception | None = None

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send if we can; raises when there is no connection."""
        if self._client is None:
            raise errors.ConnectionClosedError
        await self._client.publish(subject, payload)

    async def keep(self, handlers: Mapping[str, Handle]) -> None:
        """Stay connected, and listening, until cancelled."""
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._one_connection(handlers)
            except EXPECTED as error:
                self._tell(error, first=failures == 0)
            except Exception:  # edge: dialling must not end, not even by a bug
                log.exception("nats connection crashed", extra={"node": self.node_id})
            failures = 0 if loop.time() - began > LONGEST_PAUSE else failures + 1
            growing = SHORTEST_PAUSE * float(2 ** min(failures, 8))
            # Jitter: a restarted server must not meet all its nodes at the same instant
            pause = min(LONGEST_PAUSE, growing) * random.uniform(0.5, 1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
            self._hurry.clear()

    def hurry(self) -> None:
        """Dial now: we have something better to show."""
        self._hurry.set()

    async def settled(self) -> None:
        """Wait until every command that came in was answered."""
        while self._busy:
            await asyncio.wait(set(self._busy))

    async def _one_connection(self, handlers: Mapping[str, Handle]) -> None:
        closed = asyncio.Event()
        client = Guarded(encrypt=self._address.encrypted)
        self._trouble = None

        async def on_closed() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self._trouble = error

        try:
            await client.connect(
                **BEHAVIOUR,
                **self._address.options(self._credentials()),
                name=f"worker-{self.node_id}",
                error_cb=on_error,
                closed_cb=on_closed,
            )
            for path, handle in handlers.items():
                await client.subscribe(subjects.of(self.node_id, path), cb=self._hearing(handle))
            await client.flush()
            self._client = client
            self._up.set()
            log.info("listening", extra={"node": self.node_id})
            await _gone(client, closed)
            raise client.last_error or errors.ConnectionClosedError
        except errors.NoServersError:
            raise self._trouble or OSError("no server answers") from None
        finally:
            self._client = None
            self._up.clear()
            await _hang_up(client)

    def _hearing(self, handle: Handle) -> Callable[[Msg], Any]:
        room = asyncio.Semaphore(AT_ONCE)  # of its own: installs that queue must not delay stops

        def done(task: asyncio.Task[None]) -> None:
            self._busy.discard(task)
            room.release()

        async def hear(message: Msg) -> None:
            if self.deaf:
                return
            await room.acquire()
            task = asyncio.create_task(self._answer(handle, message))
            self._busy.add(task)
            task.add_done_callback(done)

        return hear

    async def _answer(self, handle: Handle, message: Msg) -> None:
        answer = await handle(message.data)
        if answer is None or not message.reply or self.deaf:
            return
        try:
            # By the connection that is up *now*: the command may have outlived its own
            async with asyncio.timeout(PATIENCE):
                await self._up.wait()
            await self.publish(message.reply, answer)
        except (TimeoutError, *EXPECTED) as error:
            log.warning("answer not sent", extra={"subject": message.subject, "reason": str(error)})

    def _tell(self, error: Exception, *, first: bool) -> None:
        self.trouble = words = str(error).removeprefix("nats: ") or type(error).__name__
        if "authorization" in words.lower() or "authentication" in words.lower():
            self.refused.set()
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "nats is away", extra={"node": self.node_id, "reason": words})


async def _gone(client: Client, closed: asyncio.Event) -> None:
    while client.is_connected and not closed.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await closed.wait()


async def _hang_up(client: Client) -> None:
    with suppress(*EXPECTED, TimeoutError):
        async with asyncio.timeout(GOODBYE):
            await client.close()
