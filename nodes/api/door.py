"""The heartbeat door: answers before Django is asked, stores in batches.

A thousand nodes beat a hundred times a second, and nearly every beat says what the last one
said. A (node, token) pair that is new to this process is looked up, together with all others
that came meanwhile: after a restart ten thousand nodes are known again within seconds. Beats
of known pairs are answered at once and written together, four times a second, by the statement
that Django's view uses. Whatever is not plainly good goes to that view, which knows how to
refuse and leaves an event. Every few seconds we forget the pairs of nodes that were edited and
of tokens that ended, so a revoked token or a retired node is refused within CHECK_EVERY.
"""

import asyncio
import functools
import itertools
import logging
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError
from prometheus_client import Counter

from clustermgr.lib.offloop import off_loop
from nodes.api.worker import SCHEME
from nodes.models import BackendNode, JoinToken
from nodes.services import beating, jointokens
from nodes.services.beating import Beat
from nodes.wire import HeartbeatReport

log = logging.getLogger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Pair = tuple[UUID, str]

PATH = re.compile(r"/api/node/([0-9a-fA-F-]{36})/heartbeat/?")
FLUSH_EVERY = 0.25  # seconds of beats that a crash of this process may lose
CHECK_EVERY = 3.0
# An edit is seen for this long: far above a check's interval and the skew of our own clocks
EDITED_WITHIN = timedelta(seconds=15)
AT_ONCE = 1000  # pairs in one look-up
MAX_BODY = 16 * 1024  # a beat has six numbers; anything larger takes the thorough way
ANSWER = b'{"message":"heartbeat received"}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]

BEATS = Counter("clustermgr_heartbeats", "Heartbeats by the way they took.", ["way"])
AT_THE_DOOR, BY_DJANGO = BEATS.labels(way="door"), BEATS.labels(way="django")


class Storing:
    """Whether beats reach the database; for /readyz."""

    def __init__(self) -> None:
        self._failing_since: float | None = None

    def failed(self) -> None:
        self._failing_since = self._failing_since or time.monotonic()

    def succeeded(self) -> None:
        self._failing_since = None

    def failing_for(self) -> float:
        """Seconds since the first failure in a row; 0 when all is well."""
        return time.monotonic() - self._failing_since if self._failing_since else 0.0


STORING = Storing()


class HeartbeatDoor:
    """One per process; `keep` runs beside the server and must be cancelled with it."""

    def __init__(self, django: App) -> None:
        self._django = django
        self._known: set[Pair] = set()
        self._doubtful: dict[Pair, asyncio.Future[bool]] = {}
        self._settling: asyncio.Task[None] | None = None
        self._waiting: dict[UUID, list[Beat]] = {}

    def takes(self, scope: Scope) -> bool:
        return scope["method"] == "POST" and node_in(scope["path"]) is not None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        pair = _pair(scope)
        if pair is None or not (pair in self._known or await self._found(pair)):
            BY_DJANGO.inc()
            await self._django(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        beat = Beat(
            node_id=pair[0], received_at=datetime.now(UTC), report=HeartbeatReport.read(body)
        )
        self._waiting.setdefault(pair[0], []).append(beat)
        AT_THE_DOOR.inc()
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": ANSWER})

    async def _found(self, pair: Pair) -> bool:
        """Look a new pair up, with all others that are being asked for."""
        if pair not in self._doubtful:
            self._doubtful[pair] = asyncio.get_running_loop().create_future()
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle())
        return await self._doubtful[pair]

    async def _settle(self) -> None:
        while self._doubtful:
            asked = dict(itertools.islice(self._doubtful.items(), AT_ONCE))
            for pair in asked:
                del self._doubtful[pair]
            good: set[Pair] = set()
            try:
                good = await off_loop(_still_good, set(asked))
            except Exception:  # edge: nobody may wait here for ever; Django's view says what it is
                log.warning("could not look up heartbeats", exc_info=True)
            self._known |= good
            for pair, answer in asked.items():
                if not answer.done():
                    answer.set_result(pair in good)

    async def keep(self) -> None:
        """Flush and re-check for ever; a failing database loses nothing but freshness."""
        checked_at = time.monotonic()
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY)
                await self.flush()
                if time.monotonic() - checked_at > CHECK_EVERY:
                    await self.check()
                    checked_at = time.monotonic()
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Store what came in since the last time."""
        beats = self._take()
        if not beats:
            return
        try:
            await off_loop(_store, beats)
        except Exception:  # edge: whatever it is, beats go on coming and must be kept
            STORING.failed()
            self._put_back(beats)
            log.warning("heartbeats wait", extra={"waiting": len(beats)}, exc_info=True)
        else:
            STORING.succeeded()

    async def check(self) -> None:
        """Send pairs that are no longer good back to the thorough way."""
        digests = {digest for _, digest in self._known}
        try:
            nodes, tokens = await off_loop(_doubted, digests)
        except Exception:  # edge: the database is away; nobody was revoked that we could know of
            log.warning("could not re-check heartbeats", exc_info=True)
            return
        self._known = {
            pair for pair in self._known if pair[0] not in nodes and pair[1] not in tokens
        }

    def _take(self) -> list[Beat]:
        taken, self._waiting = self._waiting, {}
        return [beat for beats in taken.values() for beat in beats]

    def _put_back(self, beats: list[Beat]) -> None:
        """Merged, one per node: an outage of hours must not fill the memory."""
        later = self._take()
        self._waiting = {beat.node_id: [beat] for beat in beating.merged([*beats, *later])}


def _pair(scope: Scope) -> Pair | None:
    """Which node speaks with which token, before anybody has checked either."""
    node_id = node_in(scope["path"])
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    text = header.decode("latin-1")
    if node_id is None or not text.startswith(SCHEME):
        return None
    return node_id, jointokens.digest(text.removeprefix(SCHEME))


@functools.lru_cache(maxsize=50_000)
def node_in(path: str) -> UUID | None:
    """The node that `path` is a heartbeat of; the same paths come every ten seconds."""
    match = PATH.fullmatch(path)
    try:
        return UUID(match.group(1)) if match else None
    except ValueError:
        return None


async def _read(receive: Receive) -> bytes | None:
    """The body, nothing of one that is too long; None when the caller left."""
    message = await receive()
    chunks: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        chunks += message.get("body", b"")[: MAX_BODY + 1 - len(chunks)]
    if message["type"] == "http.disconnect":
        return None
    return chunks if len(chunks) <= MAX_BODY else b""


def _store(beats: list[Beat]) -> None:
    """Store all; if PostgreSQL refuses what one of them says, let that one go and keep the rest."""
    try:
        beating.record(beats)
    except (DataError, IntegrityError):
        for beat in beating.merged(beats):
            try:
                beating.record([beat])
            except (DataError, IntegrityError):
                log.exception("heartbeat refused", extra={"node": str(beat.node_id)})


def _still_good(pairs: set[Pair]) -> set[Pair]:
    now = datetime.now(UTC)
    rows = BackendNode.objects.present().filter(pk__in={node for node, _ in pairs})
    usable = rows.speaking_with_usable_tokens(now).values_list("pk", "join_token__digest")
    return pairs & set(usable)


def _doubted(digests: set[str]) -> tuple[set[UUID], set[str]]:
    """Nodes somebody edited lately, and tokens that no longer open; notes which are in use."""
    now = datetime.now(UTC)
    jointokens.mark_used(digests, now=now)
    edited = BackendNode.objects.filter(updated_at__gte=now - EDITED_WITHIN)
    ended = JoinToken.objects.ended(now)
    return set(edited.values_list("pk", flat=True)), set(ended.values_list("digest", flat=True))
