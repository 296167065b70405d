"""A manager that answers what a test tells it to, on a real port."""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Scripted = tuple[int, Any, dict[str, str]]


@dataclass
class ScriptedManager:
    """Answers in `script[verb]`, in order; the last one of each verb again and again."""

    url: str = ""
    # A subject of its own: all tests share one NATS
    node_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    script: dict[str, list[Scripted]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers("register", 201, {"id": self.node_id, "status": "healthy"})
        self.answers("heartbeat", 200, {"message": "heartbeat received"})
        self.answers("drain", 200, {})
        self.answers("models", 200, [])
        self.answers("deregister", 200, {})

    def answers(self, verb: str, status: int, body: Any = None, **headers: str) -> None:
        """From now on; what was scripted before is forgotten."""
        self.script[verb] = [(status, body, headers)]

    def then(self, verb: str, status: int, body: Any = None, **headers: str) -> None:
        self.script[verb].append((status, body, headers))

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.heard]

    def bodies(self, verb: str) -> list[dict[str, Any]]:
        return [body for one, body in self.heard if one == verb]

    async def _answer(self, request: web.Request) -> web.Response:
        verb = request.path.rpartition("/")[2]
        raw = await request.read()
        self.heard.append((verb, json.loads(raw) if raw else {}))
        self.tokens.add(request.headers.get("Authorization", ""))
        scripted = self.script[verb]
        status, body, headers = scripted.pop(0) if len(scripted) > 1 else scripted[0]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)


@asynccontextmanager
async def scripted_manager() -> AsyncIterator[ScriptedManager]:
    manager = ScriptedManager()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", manager._answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = [address[:2] for address in runner.addresses]
    manager.url = f"http://{host}:{port}"
    try:
        yield manager
    finally:
        await runner.cleanup()
