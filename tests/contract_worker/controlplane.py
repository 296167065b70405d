"""The manager as a worker sees it: five HTTP endpoints, and files that galleries point to."""

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.contract_worker.background import Background

DRIP = 64 * 1024  # bytes of a slow file at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request."""

    verb: str
    node_id: str
    at: float
    authorization: str
    content_type: str
    body: Any


@dataclass
class ControlPlane:
    """`status` and `refuse` may be changed by a test while a worker talks to it."""

    token: str
    status: str = "healthy"
    node_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    in_flight: int = 0
    refuse: dict[str, int] = field(default_factory=dict)  # verb -> HTTP status
    heard: list[Heard] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)  # file -> seconds it takes to send
    served: list[str] = field(default_factory=list)
    url: str = ""

    def of(self, verb: str) -> list[Heard]:
        return [one for one in self.heard if one.verb == verb]

    def start(self, background: Background, host: str = "127.0.0.1", port: int = 0) -> None:
        self._runner = background.run(self._start(host, port))
        self.url = f"http://{host}:{self._runner.addresses[0][1]}"

    def stop(self, background: Background) -> None:
        background.run(self._runner.cleanup())

    async def _start(self, host: str, port: int) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/api/node/register", self._register)
        app.router.add_route("*", "/api/node/{id}/{verb}", self._other)
        app.router.add_get("/files/{name:.+}", self._file)
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        return runner

    async def _register(self, request: web.Request) -> web.Response:
        if refusal := await self._note(request, "register"):
            return refusal
        answer = {"id": self.node_id, "name": "x", "node_type": "backend", "status": self.status}
        return web.json_response({**answer, "created_at": "2030-01-01T00:00:00Z"}, status=201)

    async def _other(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if refusal := await self._note(request, verb):
            return refusal
        if verb == "models":
            return web.json_response([{"in_flight": self.in_flight}] if self.in_flight else [])
        return web.json_response({"message": f"{verb} received"})

    async def _note(self, request: web.Request, verb: str) -> web.Response | None:
        raw = await request.read()
        self.heard.append(
            Heard(
                verb=verb,
                node_id=request.match_info.get("id", ""),
                at=time.monotonic(),
                authorization=request.headers.get("Authorization", ""),
                content_type=request.headers.get("Content-Type", ""),
                body=json.loads(raw) if raw else None,
            )
        )
        if verb in self.refuse:
            return web.json_response({"error": "no"}, status=self.refuse[verb])
        return None

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.served.append(name)
        if name not in self.files:
            return web.Response(status=404)
        content = self.files[name]
        reply = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await reply.prepare(request)
        pieces = [content[at : at + DRIP] for at in range(0, len(content), DRIP)]
        for piece in pieces:
            await reply.write(piece)
            await asyncio.sleep(self.slow.get(name, 0.0) / len(pieces))
        return reply
