"""A worker's HTTP server as wire section 5.7 has it, and one for each way of getting it wrong."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from aiohttp import WSMsgType, web

SECRET = "test-registration-token"
Line = dict[str, str]


def line(text: str, *, second: int = 0, stream: str = "stdout") -> Line:
    return {"timestamp": f"2030-01-01T12:00:{second:02}.5Z", "stream": stream, "text": text}


class LogWorker:
    """Lives in a thread with a loop of its own; tests talk to it from theirs."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Line]] = {}
        self.heard: list[tuple[str, str]] = []  # path as it came, bearer
        self.sockets: list[web.WebSocketResponse] = []
        self.instead: Any = None  # async handler that answers in place of the real ones
        self.port = 0
        self._loop = asyncio.new_event_loop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def print(self, key: str, text: str, **more: Any) -> None:
        """Keep a line and tell it to whoever follows."""
        new = line(text, **more)
        self.logs.setdefault(key, []).append(new)
        self.say({"type": "line", "line": new})

    def say(self, frame: object) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)

        async def send() -> None:
            for socket in list(self.sockets):
                await socket.send_str(text)

        asyncio.run_coroutine_threadsafe(send(), self._loop).result(5)

    def hang_up(self) -> None:
        async def close() -> None:
            for socket in list(self.sockets):
                await socket.close()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(5)

    @contextmanager
    def running(self) -> Iterator["LogWorker"]:
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(started,))
        thread.start()
        assert started.wait(60)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(60)

    def _run(self, started: threading.Event) -> None:
        runner = web.AppRunner(self._app(), shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/v1/backend-logs", self._index)
        app.router.add_get("/v1/backend-logs/{key}", self._lines)
        app.router.add_get("/v1/backend-logs/{key}/ws", self._follow)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.heard.append((request.raw_path, bearer))
        if self.instead is not None:
            answer: web.StreamResponse = await self.instead(request)
            return answer
        if bearer != SECRET:
            return web.Response(status=401, text="unauthorized")
        answered: web.StreamResponse = await handler(request)
        return answered

    async def _index(self, request: web.Request) -> web.Response:
        return web.json_response(sorted({key.rpartition("#")[0] for key in self.logs}))

    async def _lines(self, request: web.Request) -> web.Response:
        return web.json_response(self._of(request))

    async def _follow(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"type": "initial", "lines": self._of(request)}))
        self.sockets.append(socket)
        try:
            async for message in socket:
                assert message.type is WSMsgType.TEXT
        finally:
            self.sockets.remove(socket)
        return socket

    def _of(self, request: web.Request) -> list[Line]:
        wanted = unquote(request.match_info["key"])  # the second time: aiohttp did the first
        if wanted in self.logs:
            return self.logs[wanted]
        merged = [
            it for key, kept in self.logs.items() if key.rpartition("#")[0] == wanted for it in kept
        ]
        return sorted(merged, key=lambda it: it["timestamp"])
