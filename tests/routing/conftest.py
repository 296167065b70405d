"""A caller at the route door, with Django behind it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.asgi import get_asgi_application

from clustermgr import tokens
from clustermgr.lib.offloop import aside
from scheduling.api.routedoor import RouteDoor
from scheduling.services import prefixing
from tests.factories import NOW

Reply = tuple[int, Any]


class Caller:
    """A program with a token that may route, and nothing else."""

    def __init__(self) -> None:
        user = User.objects.create_user("gateway")
        user.user_permissions.add(Permission.objects.get(codename="request_route"))
        self.user = user
        self.token, self.secret = tokens.issue(user, name="tests", now=NOW)
        self.asked_django = 0
        self.headers: dict[str, str] = {}
        self.door = RouteDoor(self._django)
        self._behind = get_asgi_application()

    async def _django(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked_django += 1
        await self._behind(scope, receive, send)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        secret: str | None = None,
        hangs_up: asyncio.Event | None = None,
    ) -> Reply:
        """The answer's status and body; (0, None) for a caller that left before it came."""
        words = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        token = f"Bearer {self.secret if secret is None else secret}".encode()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [
                (b"host", b"testserver"),
                (b"authorization", token),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(words)),
            ],
        }
        said: list[Any] = []
        spoken = iter([{"type": "http.request", "body": words, "more_body": False}])

        async def receive() -> Any:
            message = next(spoken, None)
            if message is None:  # on the line, silent, until it hangs up
                await (hangs_up or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message: Any) -> None:
            said.append(message)

        through = self.door.answer if self.door.takes(scope) else self._django
        await through(scope, receive, send)
        if not said:
            return 0, None
        self.headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
        told = b"".join(message.get("body", b"") for message in said)
        return said[0]["status"], json.loads(told)

    async def route(self, model: str = "llama", **more: Any) -> Reply:
        hangs_up = more.pop("hangs_up", None)
        return await self.ask("POST", "/api/route", {"model": model, **more}, hangs_up=hangs_up)

    def run(self, story: Callable[["Caller"], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            try:
                return await story(self)
            finally:
                await aside(int)  # a plan that nobody waits for any more ends in its own test

        return asyncio.run(whole())


@pytest.fixture
def caller(transactional_db: None) -> Iterator[Caller]:
    yield Caller()
    prefixing.default().tallies.flush()  # not seconds later, into another test's tables
