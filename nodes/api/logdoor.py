"""The WebSocket through which a log is followed: a worker's frames, passed on as they come.

Nothing is stored. A frame is taken from the worker only when the one before was given away, so
a slow reader slows his own worker's socket and no memory of ours. Who loses the permission
loses the log within CHECK_EVERY. The worker's faults end with 1011 and a sentence, as LocalAI's
manager ends them; a browser could not read an HTTP status.
"""

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from clustermgr.lib.api import refusal
from clustermgr.lib.errors import Busy, DomainError, Forbidden, NotFound, WorkerUnreachable
from clustermgr.lib.offloop import off_loop
from nodes import workerhttp
from nodes.models import BackendNode
from nodes.services import logs
from nodes.wire.logs import follow_path, read_frame

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Caller = Callable[[Scope], User]

PATH = re.compile(r"/ws/nodes/([^/]+)/backend-logs/(.+)", re.DOTALL)
AT_ONCE = 64  # followers in this process
PER_NODE = 8  # a worker has better things to do than to be watched
CHECK_EVERY = 30.0  # seconds
WORKER_FAILED, TRY_LATER, ENDED, NO_LONGER = 1011, 1013, 1000, 1008
MAX_REASON = 123  # bytes; what the protocol leaves for words


class LogDoor:
    """One per process; `caller` tells who opens a socket, or refuses."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._followers: Counter[UUID] = Counter()

    def takes(self, scope: Scope) -> bool:
        return bool(scope["type"] == "websocket")

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            node, key = await off_loop(self._admit, scope)
        except DomainError as error:
            await _refuse(scope, send, error)
            return
        await send({"type": "websocket.accept"})
        code, words = await self._serve(scope, node, key, receive, send)
        # Who left first cannot be told any more
        with contextlib.suppress(RuntimeError, OSError):
            await send({"type": "websocket.close", "code": code, "reason": cut(words)})

    async def _serve(
        self, scope: Scope, node: BackendNode, key: str, receive: Receive, send: Send
    ) -> tuple[int, str]:
        """Pass frames on until a side ends it; how it ended, as a code and a sentence."""
        try:
            with self._counted(node):
                return await _first(
                    self._pass_on(node, key, send), _left(receive), self._guard(scope)
                )
        except OSError:  # the reader left while we spoke
            return ENDED, ""
        except Busy as crowd:
            return TRY_LATER, str(crowd)
        except WorkerUnreachable as error:
            return WORKER_FAILED, str(logs.in_context(error, node, now=datetime.now(UTC)))
        except DomainError as error:
            return WORKER_FAILED, str(error)

    @contextlib.contextmanager
    def _counted(self, node: BackendNode) -> Any:
        if self._followers.total() >= AT_ONCE or self._followers[node.pk] >= PER_NODE:
            raise Busy("Too many follow logs already; this one is tried again.")
        self._followers[node.pk] += 1
        try:
            yield
        finally:
            self._followers[node.pk] -= 1
            self._followers += Counter()  # forgets those at zero

    async def _pass_on(self, node: BackendNode, key: str, send: Send) -> tuple[int, str]:
        way = await off_loop(logs.door, node)
        async with workerhttp.follow(way, follow_path(key)) as frames:
            async for frame in frames:
                if read_frame(frame) is not None:
                    await send({"type": "websocket.send", "text": frame})
        return WORKER_FAILED, "The worker ended the log."

    async def _guard(self, scope: Scope) -> tuple[int, str]:
        while True:
            await asyncio.sleep(CHECK_EVERY)
            try:
                await off_loop(self._admit, scope)
            except DomainError as error:
                return NO_LONGER, str(error)

    def _admit(self, scope: Scope) -> tuple[BackendNode, str]:
        """Who may look, at which node, at which process."""
        if not self._caller(scope).has_perm("nodes.view_logs"):
            raise Forbidden("Reading logs takes the permission nodes.view_logs.")
        asked = PATH.fullmatch(scope["path"])
        if asked is None:
            raise NotFound("There is no such thing here.")
        try:
            wanted = UUID(asked[1])
        except ValueError:
            raise NotFound(f"There is no node {asked[1]}.") from None
        node = BackendNode.objects.select_related("join_token").filter(pk=wanted).first()
        if node is None:
            raise NotFound(f"There is no node {asked[1]}.")
        return node, asked[2]


async def _first(*ways: Any) -> tuple[int, str]:
    """The result of whichever ends first; the others are ended with it."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended: tuple[int, str] = done.pop().result()
        return ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(receive: Receive) -> tuple[int, str]:
    while (await receive())["type"] != "websocket.disconnect":
        pass  # nobody has anything to say to a log
    return ENDED, ""


async def _refuse(scope: Scope, send: Send, error: DomainError) -> None:
    """Before the handshake a refusal is an HTTP answer, where the server can give one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": NO_LONGER, "reason": cut(str(error))})
        return
    body = json.dumps(refusal(error.http_status, error.code, str(error)).data).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start = {"status": error.http_status, "headers": headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": body})


def cut(words: str) -> str:
    """As much of a sentence as a closing frame can carry, whole characters only."""
    if len(words.encode()) <= MAX_REASON:
        return words
    return words.encode()[: MAX_REASON - 4].decode(errors="ignore") + " ..."
