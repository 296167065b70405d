"""The stream's door: keeps listeners without Django, with one look at the database for all.

A thousand open pages must not be a thousand polls: while anybody listens, one task per process
asks twice a second what changed, and hands the same bytes to everybody.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from time import monotonic
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.handlers.asgi import ASGIRequest
from prometheus_client import Gauge

from backendops.api.stream import (
    CONTENT_TYPE,
    HEADERS,
    NEEDS,
    RETRY,
    encode,
    event,
    last_event_id,
    opening,
)
from backendops.services import streaming
from clustermgr import tokens
from clustermgr.lib.errors import InvalidInput, Unauthenticated
from clustermgr.lib.offloop import off_loop

log = logging.getLogger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATHS = frozenset({"/api/operations/events", "/api/operations/events/"})
POLL_EVERY = 0.5  # seconds
PING_EVERY = 15.0
RECHECK_EVERY = 60.0  # a token that was revoked, a permission that was taken
LOOK_BACK = 5.0  # seconds; no transaction that changes ops takes so long
MOST_LISTENERS = 200
MOST_WAITING = 100  # chunks for one listener; who is slower is sent away and comes back
MOST_AT_ONCE = 20_000
PING = b": ping\n\n"
FULL = b'{"code":"too_many_listeners","detail":"Too many listen already; try again later."}'
END = b""

LISTENERS = Gauge("clustermgr_stream_listeners", "Open streams.", multiprocess_mode="livesum")


class Feed:
    """What is new since the last look, each change once."""

    def __init__(self, start: int) -> None:
        self._sent: dict[int, int] = {}  # op -> the change that was handed out
        self._marks: deque[tuple[float, int]] = deque([(monotonic(), start)])

    def look(self) -> bytes:
        """One query, or two; call it off the loop."""
        floor = self._floor()
        changes = streaming.since(floor, most=MOST_AT_ONCE)
        if changes is None:
            return self._start_over()
        fresh = [change for change in changes if self._sent.get(change.op) != change.change]
        self._sent = {change.op: change.change for change in changes}
        if changes:
            self._marks.append((monotonic(), changes[-1].change))
        return b"".join(encode(change) for change in fresh)

    def _start_over(self) -> bytes:
        now = streaming.newest()
        self._sent, self._marks = {}, deque([(monotonic(), now)])
        return event("reset", now)

    def _floor(self) -> int:
        """The highest number of some seconds ago: what was taken by then is committed by now."""
        old = monotonic() - LOOK_BACK
        while len(self._marks) > 1 and self._marks[1][0] < old:
            self._marks.popleft()
        return self._marks[0][1]


class ChangesDoor:
    """One per process; `keep` runs beside the server and must be cancelled with it."""

    def __init__(self, django: App) -> None:
        self._django = django
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._somebody = asyncio.Event()
        self._start = 0  # where whoever woke the feed began
        self._closing = asyncio.Event()

    def takes(self, scope: Scope) -> bool:
        return scope["method"] == "GET" and scope["path"] in PATHS

    def close(self) -> None:
        """The server is about to stop and waits for open answers: end them."""
        self._closing.set()
        for listener in self._listeners:
            _end(listener)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            seen = last_event_id(_header(scope, b"last-event-id"))
        except InvalidInput:
            seen = -1
        if seen == -1 or self._closing.is_set() or not await off_loop(may_listen, scope):
            await self._django(scope, receive, send)  # which knows how to refuse
        elif len(self._listeners) >= MOST_LISTENERS:
            await _refuse(send)
        else:
            await self._serve(scope, receive, send, seen)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, seen: int | None) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)
        # Known before it is said, and said after the feed has begun there: nothing falls between
        start = await off_loop(streaming.newest)
        self._listeners.add(queue)
        if not self._somebody.is_set():
            self._start = start
            self._somebody.set()
        LISTENERS.inc()
        leaving = asyncio.create_task(_left(receive, queue))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _headers()})
            await _say(send, RETRY + await off_loop(opening, seen))
            await self._follow(scope, send, queue)
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self._listeners.discard(queue)
            LISTENERS.dec()

    async def _follow(self, scope: Scope, send: Send, queue: asyncio.Queue[bytes]) -> None:
        checked_at = monotonic()
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(PING_EVERY):
                    chunk = await queue.get()
            except TimeoutError:
                chunk = PING
            if chunk == END:
                return
            if monotonic() - checked_at > RECHECK_EVERY:
                if not await off_loop(may_listen, scope):
                    return
                checked_at = monotonic()
            await _say(send, chunk)

    async def keep(self) -> None:
        """Look for changes as long as somebody listens, for ever."""
        while True:
            await self._somebody.wait()
            try:
                await self._watch(Feed(self._start))
            except Exception:  # edge: the database is away; listeners come back and resume
                log.warning("could not look for changes", exc_info=True)
                for listener in self._listeners:
                    _end(listener)
                self._somebody.clear()  # who comes back says anew where it begins
                await asyncio.sleep(POLL_EVERY)

    async def _watch(self, feed: Feed) -> None:
        while self._listeners:
            await asyncio.sleep(POLL_EVERY)
            chunk = await off_loop(feed.look)
            if chunk:
                for listener in self._listeners:
                    _hand(listener, chunk)
        self._somebody.clear()


def may_listen(scope: Scope) -> bool:
    """Whether a token or a session opens the stream; who it does not is Django's to refuse."""
    request = ASGIRequest(scope, BytesIO())
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        try:
            user = tokens.authenticate(secret.strip(), now=datetime.now(UTC)).user
        except Unauthenticated:
            return False
        return user.has_perm(NEEDS)
    request.session = SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return get_user(request).has_perm(NEEDS)


def _hand(queue: asyncio.Queue[bytes], chunk: bytes) -> None:
    try:
        queue.put_nowait(chunk)
    except asyncio.QueueFull:
        _end(queue)


def _end(queue: asyncio.Queue[bytes]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(END)


async def _left(receive: Receive, queue: asyncio.Queue[bytes]) -> None:
    """Notice that the caller hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    _end(queue)


async def _say(send: Send, chunk: bytes) -> None:
    with suppress(OSError):  # it hung up meanwhile; `_left` tells
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"30")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": FULL})


def _header(scope: Scope, wanted: bytes) -> str:
    found = next((value for name, value in scope["headers"] if name == wanted), b"")
    return found.decode("latin-1")


def _headers() -> list[tuple[bytes, bytes]]:
    fixed = {"Content-Type": CONTENT_TYPE, **HEADERS}
    return [(name.lower().encode(), value.encode()) for name, value in fixed.items()]
