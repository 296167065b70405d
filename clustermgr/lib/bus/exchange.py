"""Questions and answers over the uplink; everything here runs on its loop."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta

from nats import errors
from nats.aio.msg import Msg

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus.client import Hear, StrictClient
from clustermgr.lib.bus.uplink import LONGEST_PAUSE, Ear, Uplink, in_words
from clustermgr.lib.errors import BusError, NodeSilent, NodeUnreachable, NotConnected

# As long as the longest pause between two attempts to connect: a call that is made when the
# server is back gets through.
PATIENCE = LONGEST_PAUSE

NO_RESPONDERS = "503"
AT_ONCE = 256  # silent nodes must not hold up the others, nor a thousand answers the process

OnEvent = Callable[[bytes], None]


class Exchange:
    """Asks and tells on behalf of the threads of one process."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self.uplink = Uplink(cluster)
        # Workers may publish answers below the default prefix only.
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self.uplink.ears.add(Ear(f"{self._inbox}.*", self._hear_answer))
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        self._settling: set[asyncio.Task[bool]] = set()

    async def ask(
        self, subject: str, payload: bytes, *, timeout: timedelta, events: str | None, hear: OnEvent
    ) -> bytes:
        """Send one request, pass the events before its answer to `hear`, return the answer."""
        seconds = timeout.total_seconds()
        deadline = asyncio.get_running_loop().time() + seconds
        client = await self.uplink.client(patience=min(PATIENCE, seconds))
        with self._expecting() as (inbox, answer):

            def hear_in_time(event: Msg) -> None:
                if not answer.done():
                    hear(event.data)

            async with self._listening(client, events, hear_in_time):
                with _our_errors():
                    await client.publish(subject, payload, reply=inbox)
                message = await _by(deadline, answer, subject)
        if not message.data and (message.headers or {}).get("Status") == NO_RESPONDERS:
            raise NodeUnreachable(f"Nobody listens on {subject}.")
        return message.data

    async def ask_each(
        self, subjects: Sequence[str], payload: bytes, *, timeout: timedelta
    ) -> list[bytes | BusError]:
        """Send one request to each, and return what came of it in the same order."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def ask(subject: str) -> bytes | BusError:
            async with turn:
                try:
                    return await self.ask(
                        subject, payload, timeout=timeout, events=None, hear=_ignore
                    )
                except BusError as error:
                    return error

        return await asyncio.gather(*map(ask, subjects))

    async def tell(self, subject: str, payload: bytes) -> None:
        """Send one message and have the server confirm that it came."""
        await self.tell_each([(subject, payload)])

    async def tell_each(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages and have the server confirm that all came."""
        client = await self.uplink.client(patience=PATIENCE)
        with _our_errors():
            for subject, payload in messages:
                await client.publish(subject, payload)
        await self._confirm(client)

    async def listen(self, subject: str, hear: OnEvent) -> None:
        """Hear `subject` until cancelled, whatever becomes of the connection."""
        ear = Ear(subject, lambda message: hear(message.data))
        self.uplink.ears.add(ear)  # the next connection opens it by itself
        try:
            while ear.on is None:
                with suppress(NotConnected), _our_errors():
                    client = await self.uplink.client(patience=PATIENCE)
                    if ear.on is None:
                        await ear.open(client)
            await asyncio.Event().wait()
        finally:
            self.uplink.ears.discard(ear)
            await ear.close()

    @contextmanager
    def _expecting(self) -> Iterator[tuple[str, asyncio.Future[Msg]]]:
        # Only whoever was asked can know where to answer. A number would not do: the node that
        # was asked last could answer in the name of the one that is asked next.
        inbox = f"{self._inbox}.{secrets.token_hex(8)}"
        self._answers[inbox] = asyncio.get_running_loop().create_future()
        try:
            yield inbox, self._answers[inbox]
        finally:
            del self._answers[inbox]

    def _hear_answer(self, message: Msg) -> None:
        answer = self._answers.get(message.subject)
        if answer and not answer.done():
            answer.set_result(message)

    @asynccontextmanager
    async def _listening(
        self, client: StrictClient, subject: str | None, hear: Hear
    ) -> AsyncIterator[None]:
        """Hear `subject` while the block runs, over reconnects; None: nothing to hear."""
        if subject is None:
            yield
            return
        ear = Ear(subject, hear)
        self.uplink.ears.add(ear)
        try:
            with _our_errors():
                await ear.open(client)
            await self._confirm(client)
            yield
        finally:
            self.uplink.ears.discard(ear)
            await ear.close()

    async def _confirm(self, client: StrictClient) -> None:
        """Return when the server has processed all that was sent so far, else NotConnected."""
        settling = asyncio.create_task(client.settle())
        self._settling.add(settling)  # the loop itself holds tasks weakly
        settling.add_done_callback(self._settling.discard)
        await asyncio.wait([settling], timeout=PATIENCE)  # does not cancel, settle() forbids it
        if not (settling.done() and settling.result()):
            raise NotConnected("NATS did not confirm; the message may not have left.")


def _ignore(event: bytes) -> None:
    pass


async def _by(deadline: float, answer: asyncio.Future[Msg], subject: str) -> Msg:
    try:
        async with asyncio.timeout_at(deadline):
            return await answer
    except TimeoutError:
        raise NodeSilent(f"No answer on {subject} yet.") from None


@contextmanager
def _our_errors() -> Iterator[None]:
    """A message that can never be sent is the caller's bug; any other refusal is the link's."""
    try:
        yield
    except (errors.BadSubjectError, errors.MaxPayloadError) as error:
        raise ValueError(in_words(error)) from error
    except errors.Error as error:
        raise NotConnected(f"We are cut off from NATS ({in_words(error)}).") from error
