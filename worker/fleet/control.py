"""How a running fleet is told what to do: JSON over HTTP on loopback, with a token."""

import hmac
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from worker.fleet.nodes import Fleet, State
from worker.machine import Refused
from worker.wire.reading import BadMessage, read

# Whom a verb changes
CHANGES = {
    "silence": {State.RUNNING},
    "wake": {State.SILENT, State.CRASHED},
    "crash": {State.RUNNING},
    "remove": set(State),
}
MOST = 20_000  # nodes that one command may add


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes: by name, or so many; neither: all that there are."""

    names: list[str] = msgspec.field(default_factory=list)
    count: int = 0


class Control:
    def __init__(self, fleet: Fleet, *, on_empty: Callable[[], None]) -> None:
        self.token = secrets.token_urlsafe(24)
        self._fleet = fleet
        self._on_empty = on_empty

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        app.router.add_get("/nodes", self._list)
        app.router.add_post("/{verb:add|silence|wake|crash|remove}", self._obey)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        told = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(told, f"Bearer {self.token}".encode()):
            return web.json_response({"error": "unauthorized"}, status=401)
        try:
            response: web.StreamResponse = await handler(request)
        except (Refused, BadMessage) as words:
            return web.json_response({"error": str(words)}, status=400)
        return response

    async def _list(self, _: web.Request) -> web.Response:
        nodes = self._fleet.listed()
        return web.json_response(
            [
                {
                    "name": node.name,
                    "state": node.state,
                    "id": node.agent.known.id if node.agent.known else "",
                    "listening": not node.agent.why_not_ready(),
                }
                for node in nodes
            ]
        )

    async def _obey(self, request: web.Request) -> web.Response:
        order = read(await request.read() or b"{}", Order)
        verb = request.match_info["verb"]
        names = await self._add(order) if verb == "add" else await self._tell(verb, order)
        return web.json_response({"names": names})

    async def _add(self, order: Order) -> list[str]:
        if not 0 < order.count <= MOST:
            raise Refused(f"count must be between 1 and {MOST}.")
        return await self._fleet.add(order.count)

    async def _tell(self, verb: str, order: Order) -> list[str]:
        names = order.names or self._some(verb, order.count)
        if verb == "silence":
            self._fleet.silence(names)
        elif verb == "wake":
            await self._fleet.wake(names)
        elif verb == "crash":
            await self._fleet.crash(names)
        else:
            await self._fleet.remove(names)
            if not self._fleet.listed():
                self._on_empty()
        return names

    def _some(self, verb: str, count: int) -> list[str]:
        """So many of those whom the verb would change, or all of them."""
        changes = CHANGES[verb]
        everybody = len(self._fleet.listed())
        return self._fleet.some(count or everybody, among=lambda node: node.state in changes)


@asynccontextmanager
async def served(control: Control, state_file: Path | None) -> AsyncIterator[None]:
    """Listen on a free port of the loopback, and write down where and with which token."""
    runner = web.AppRunner(control.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        if state_file:
            _write_private(state_file, {"url": f"http://127.0.0.1:{port}", "token": control.token})
        yield
    finally:
        if state_file:
            state_file.unlink(missing_ok=True)
        await runner.cleanup()


def _write_private(path: Path, document: dict[str, str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(document, file)
    fresh.rename(path)
