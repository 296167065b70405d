"""Probes for whoever watches the worker, and the logs of its processes for the manager."""

import asyncio
import hmac
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import WSMsgType, web

from worker.machine import Line, Logs
from worker.wire import keys

PING_EVERY = 30.0  # seconds
MAX_FRAME = 4096  # bytes that we read; a follower has nothing to say
MAX_WAITING = 1000  # lines; a follower that is slower loses the oldest
LOGS = "/v1/backend-logs"
OPEN = ("/healthz", "/readyz")  # to whoever asks
Waiting = asyncio.Queue[Line]


class Pages:
    """What the worker serves over HTTP."""

    def __init__(self, *, logs: Logs, token: str, why_not_ready: Callable[[], str]) -> None:
        self._logs = logs
        self._token = token
        self._why_not_ready = why_not_ready
        self._followers: set[web.WebSocketResponse] = set()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get(LOGS, self._models)
        # aiohttp decodes once; ids come decoded once more, as LocalAI's do
        app.router.add_get(f"{LOGS}/{{id:.+}}/ws", self._follow)
        app.router.add_get(f"{LOGS}/{{id:.+}}", self._lines)
        app.on_shutdown.append(self._hang_up)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        told = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        wanted = f"Bearer {self._token}".encode()
        known = not self._token or hmac.compare_digest(told, wanted)
        if request.path not in OPEN and not known:
            return web.Response(status=401, text="unauthorized")
        response: web.StreamResponse = await handler(request)
        return response

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        if problem := self._why_not_ready():
            return web.Response(status=503, text=f"not ready: {problem}")
        return web.Response(text="ok")

    async def _models(self, _: web.Request) -> web.Response:
        known = self._logs.keys()
        named = (keys.split(key) for key in known)
        return _json(sorted({key[0] for key in named if key}))

    async def _lines(self, request: web.Request) -> web.Response:
        return _json([_shown(line) for line in self._merged(self._meant(request))])

    async def _follow(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=PING_EVERY, max_msg_size=MAX_FRAME)
        await socket.prepare(request)
        self._followers.add(socket)
        waiting: Waiting = asyncio.Queue(MAX_WAITING)
        meant = self._meant(request)
        loop = asyncio.get_running_loop()

        def hear(line: Line) -> None:  # from whichever thread reads the process
            loop.call_soon_threadsafe(_keep, waiting, line)

        ends = [self._logs.follow(key, hear) for key in meant]
        try:
            lines = [_shown(line) for line in self._merged(meant)]
            await socket.send_str(_text({"type": "initial", "lines": lines}))
            await _send_until_closed(socket, waiting)
        finally:
            for end in ends:
                end()
            self._followers.discard(socket)
        return socket

    def _meant(self, request: web.Request) -> list[str]:
        """`model#1` is one process, `model` all of its replicas."""
        wanted = unquote(request.match_info["id"])
        known = self._logs.keys()
        if wanted in known:
            return [wanted]
        return [key for key in known if (parts := keys.split(key)) and parts[0] == wanted]

    def _merged(self, meant: list[str]) -> list[Line]:
        lines = [line for key in meant for line in self._logs.lines(key)]
        return sorted(lines, key=lambda line: line.timestamp)

    async def _hang_up(self, _: web.Application) -> None:
        for socket in set(self._followers):
            await socket.close(code=1001, message=b"the worker is shutting down")


async def _send_until_closed(socket: web.WebSocketResponse, waiting: Waiting) -> None:
    async def send() -> None:
        while True:
            line = await waiting.get()
            await socket.send_str(_text({"type": "line", "line": _shown(line)}))

    sending = asyncio.create_task(send())
    try:
        async for message in socket:  # reading is what notices that the other side has left
            if message.type is WSMsgType.ERROR:
                break
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await sending


def _keep(waiting: Waiting, line: Line) -> None:
    if waiting.full():
        waiting.get_nowait()
    waiting.put_nowait(line)


def _shown(line: Line) -> dict[str, str]:
    return {"timestamp": line.timestamp.isoformat(), "stream": line.stream, "text": line.text}


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _json(value: object) -> web.Response:
    return web.Response(text=_text(value), content_type="application/json")
