"""The door for requests: leases without Django's way through middleware and views.

A token is looked up once in CHECK_EVERY; who has none, or may not, is refused by the
views behind the door, which say the same in the same words.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import OperationalError
from django.utils import timezone

from clustermgr import tokens
from clustermgr.lib.api import envelope
from clustermgr.lib.coalescing import TogetherAsync
from clustermgr.lib.errors import DomainError, NotFound, TooLarge, Unauthenticated
from clustermgr.lib.offloop import off_loop
from clustermgr.lib.text import uuid_in
from scheduling.api import figures, routebody
from scheduling.api.routebody import ReleaseIn, RenewIn, RouteIn
from scheduling.routing.asks import Ask, Lease
from scheduling.services import leasing
from scheduling.services.looprouting import CallerLeft, LoopRouter
from scheduling.services.routing import default_router

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = tuple[int, dict[str, Any]]

log = logging.getLogger(__name__)

# Of the fast lane, and of Django's connections
AWAY = (psycopg.OperationalError, OperationalError)
NEEDS = "scheduling.request_route"
PATH = re.compile(r"/api/route(?:/(?P<lease>[0-9a-fA-F-]{36}))?(?:/(?P<verb>renew|release))?/?")
POSTED = {(False, None): "lease", (False, "release"): "release", (True, "renew"): "renew"}
BEARER = "bearer "
CHECK_EVERY = 3.0  # seconds: so late a revoked token is refused
MOST_CALLERS = 10_000
SLOW = 0.1  # seconds that a pick takes before it is worth asking whether the caller still waits


@dataclass(frozen=True, slots=True)
class _Caller:
    name: str | None  # None: may not, and is told so by Django
    until: float


class RouteDoor:
    """One per process."""

    def __init__(self, django: App) -> None:
        self._django = django
        self._router = LoopRouter(default_router(clock=timezone.now))
        self._callers: dict[str, _Caller] = {}
        self._names: TogetherAsync[str, str | None] = TogetherAsync(_names_of)

    def takes(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path.startswith("/api/route") and self._verb(scope) is not None

    def close(self) -> None:
        """Let nobody wait any longer: the process is told to stop."""
        self._router.stop()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._caller(_secret(scope))
            if caller is None:
                await self._django(scope, receive, send)
                return
            status, told = await self._do(scope, receive, caller)
        except CallerLeft:
            return
        except DomainError as refusal:
            await self._refuse(scope, send, refusal)
        except AWAY:
            log.warning("a request got no answer", exc_info=True)
            away = DatabaseAway("The database does not answer; try again soon.")
            await self._refuse(scope, send, away)
        else:
            await _say(send, status, told)

    async def _refuse(self, scope: Scope, send: Send, refusal: DomainError) -> None:
        if self._verb(scope) == "lease":
            figures.refused(refusal)
        await _say(send, refusal.http_status, envelope(refusal), refusal.retry_after)

    def _verb(self, scope: Scope) -> str | None:
        found = PATH.fullmatch(scope["path"])
        if found is None:
            return None
        lease, verb, method = found["lease"], found["verb"], scope["method"]
        if method == "DELETE":
            return "end" if lease and not verb else None
        return POSTED.get((bool(lease), verb)) if method == "POST" else None

    async def _do(self, scope: Scope, receive: Receive, caller: str) -> Answer:
        found = PATH.fullmatch(scope["path"])
        lease = uuid_in(found["lease"] or "") if found else None
        match self._verb(scope):
            case "lease":
                given = routebody.read(await _body(receive), RouteIn)
                return await self._lease(given, receive, caller)
            case "renew" if lease:
                return await self._renew(lease, routebody.read(await _body(receive), RenewIn))
            case "release":
                return await self._release_many(routebody.read(await _body(receive), ReleaseIn))
            case "end" if lease:
                return 200, {"released": await self._router.release(lease)}
        raise NotFound("There is no such lease.")

    async def _lease(self, given: RouteIn, receive: Receive, caller: str) -> Answer:
        ask, within = routebody.ask_of(given, holder=caller)
        began = monotonic()
        lease = await self._router.acquire(ask)
        if lease is None:
            lease = await self._waited(ask, within, receive)
        elif monotonic() - began > SLOW:
            await self._check_there(lease, receive)
        figures.TOOK.observe(monotonic() - began)
        figures.granted(lease)
        return 200, routebody.answer(lease)

    async def _waited(self, ask: Ask, within: timedelta, receive: Receive) -> Lease:
        leaving = asyncio.create_task(_left(receive))
        try:
            return await self._router.wait_for(ask, within=within, leaving=leaving)
        finally:
            leaving.cancel()

    async def _check_there(self, lease: Lease, receive: Receive) -> None:
        """Who gave up during a pick that took long would hold a replica until the lease expires."""
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.sleep(0)  # it has looked once: who left is known to have left
            if leaving.done():
                raise CallerLeft
        except (CallerLeft, asyncio.CancelledError):
            await self._router.release(lease.id)
            raise
        finally:
            leaving.cancel()

    async def _renew(self, lease: UUID, given: RenewIn) -> Answer:
        until = timezone.now() + routebody.ttl_of(given.ttl)
        renewed = await off_loop(leasing.renew, [lease], until=until)
        if lease not in renewed:
            raise NotFound("There is no such lease; it was released, or has expired.")
        return 200, {"lease_id": str(lease), "expires_at": renewed[lease]}

    async def _release_many(self, given: ReleaseIn) -> Answer:
        known = routebody.leases_of(given)
        ended = await asyncio.gather(*(self._router.release(lease) for lease in known))
        return 200, {"released": sum(ended)}

    async def _caller(self, secret: str) -> str | None:
        if not secret:
            return None
        key = tokens.digest(secret)
        known = self._callers.get(key)
        if known is None or known.until < monotonic():
            # Whoever else comes with it meanwhile waits for the same answer
            name = await self._names.do(key, secret)
            if len(self._callers) >= MOST_CALLERS:
                self._callers.clear()
            known = self._callers[key] = _Caller(name, monotonic() + CHECK_EVERY)
        return known.name


class DatabaseAway(DomainError):
    """PostgreSQL is restarting, or gone for longer than a request is made to wait."""

    code = "database_away"
    http_status = 503
    retry_after = 5


async def _names_of(alike: Sequence[str]) -> list[str | None]:
    return [await off_loop(_name_of, alike[0])] * len(alike)


def _name_of(secret: str) -> str | None:
    try:
        user = tokens.authenticate(secret, now=timezone.now()).user
    except Unauthenticated:
        return None
    return user.get_username() if user.has_perm(NEEDS) else None


def _secret(scope: Scope) -> str:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    text: str = header.decode("latin-1")
    return text[len(BEARER) :].strip() if text.lower().startswith(BEARER) else ""


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        body += message.get("body", b"")
        if len(body) > routebody.MOST_BODY:
            raise TooLarge(f"A request may have {routebody.MOST_BODY} bytes.")
        if not message.get("more_body"):
            return body


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _say(
    send: Send, status: int, told: dict[str, Any], retry_after: int | None = None
) -> None:
    body = msgspec.json.encode(told)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if retry_after:
        headers.append((b"retry-after", b"%d" % retry_after))
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
