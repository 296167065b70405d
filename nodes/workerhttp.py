"""The HTTP server that each worker runs beside its backends: bounded questions, no trust.

A worker may be anything that registered. It gets one request at the address it named, with a
secret it already has; it is not followed elsewhere, not waited for, and not read to its end.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import ClientTimeout, WSMsgType
from yarl import URL

from clustermgr.lib.errors import NodeRefused, WorkerUnreachable

HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})", re.ASCII)
WITHIN = ClientTimeout(total=15, connect=5)  # seconds; LocalAI's own manager waits 15, too
HANDSHAKE_WITHIN = 10.0
SILENT_FOR = 30.0  # a worker we follow is pinged this often, and given up without an answer
# A thousand lines for each process; more is a worker that writes novels, or means harm
MAX_BYTES = 8 * 1024 * 1024
CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDoor:
    """Where one worker listens and what it wants to hear."""

    address: str  # host:port, as the worker registered it
    secret: str = field(repr=False)

    def url(self, path: str, *, scheme: str = "http") -> URL:
        """`path` is already escaped; an address that says more than host and port is refused."""
        found = HOST_AND_PORT.fullmatch(self.address)
        if found is None or not 0 < int(found["port"]) < 2**16:
            raise NodeRefused(f"The worker registered {self.address!r}, which is no host:port.")
        return URL(f"{scheme}://{self.address}{path}", encoded=True)

    @property
    def headers(self) -> dict[str, str]:
        # Identity: what is compressed can be small on the wire and endless in memory
        return {"Authorization": f"Bearer {self.secret}", "Accept-Encoding": "identity"}


async def get(door: WorkerDoor, path: str) -> bytes:
    """Ask for `path`; anything but a 200 of reasonable size is a refusal in a sentence."""
    url = door.url(path)
    with _in_words(door):
        async with (
            aiohttp.ClientSession(timeout=WITHIN, auto_decompress=False) as session,
            session.get(url, headers=door.headers, allow_redirects=False) as reply,
        ):
            if reply.status != 200:
                raise NodeRefused(_status(reply.status))
            return await _bounded(reply.content)


@asynccontextmanager
async def follow(door: WorkerDoor, path: str) -> AsyncIterator[AsyncIterator[str]]:
    """The text frames of a WebSocket at `path`, until the worker ends it."""
    url = door.url(path, scheme="ws")
    async with aiohttp.ClientSession(trace_configs=[_no_redirects()]) as session:
        with _in_words(door):
            async with asyncio.timeout(HANDSHAKE_WITHIN):
                socket = await session.ws_connect(
                    url,
                    headers=door.headers,
                    heartbeat=SILENT_FOR,
                    max_msg_size=MAX_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                )
        try:
            yield _frames(socket)
        finally:
            await socket.close()


async def _frames(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[str]:
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            raise NodeRefused("The worker sends something that is no log.")
        if message.type is WSMsgType.TEXT:
            yield message.data


def _no_redirects() -> aiohttp.TraceConfig:
    """A WebSocket's handshake follows redirects and has no switch for it; this ends it."""

    async def refuse(_: object, __: object, seen: aiohttp.TraceRequestRedirectParams) -> None:
        raise NodeRefused(_status(seen.response.status))

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


@contextmanager
def _in_words(door: WorkerDoor) -> Iterator[None]:
    """What can go wrong on the way, told apart: nobody there, no answer, nonsense."""
    try:
        yield
    except TimeoutError as slow:
        sentence = f"The worker does not answer at {door.address} within {WITHIN.total:.0f} s."
        raise WorkerUnreachable(sentence) from slow
    except aiohttp.WSServerHandshakeError as refused:
        raise NodeRefused(_status(refused.status)) from refused
    except aiohttp.ClientConnectorError as gone:
        raise WorkerUnreachable(f"Nobody answers at {door.address}.") from gone
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as broken:
        sentence = f"The worker at {door.address} breaks off in the middle of its answer."
        raise WorkerUnreachable(sentence) from broken
    except aiohttp.ClientError as nonsense:
        raise NodeRefused("What listens at the worker's address does not speak HTTP.") from nonsense


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    taken = bytearray()
    async for chunk in content.iter_chunked(CHUNK):
        taken += chunk
        if len(taken) > MAX_BYTES:
            raise NodeRefused(f"The worker answers with more than {MAX_BYTES >> 20} MB.")
    return bytes(taken)


def _status(status: int) -> str:
    if status in (401, 403):
        return (
            "The worker does not accept the token it joined with:"
            " restart it with the one it registered with, so that both sides agree."
        )
    if 300 <= status < 400:
        return "The worker sends us elsewhere; it is not followed, our token is for it alone."
    if status == 404:
        return "The worker has no logs to show: it is older than this feature."
    return f"The worker answers with status {status}."
