"""Plays LocalAI's client: exact subscriptions, a flush after each, answers into `msg.reply`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import nats
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg

from clustermgr.lib.natsauth import Key, Kind, Permissions, encode, user_claims
from clustermgr.lib.natsauth.claims import credentials_file
from nodes.wire.permissions import permissions_of
from nodes.wire.subjects import Role
from tests.contract.nats_server import Server

SOON = timedelta(minutes=1)


@dataclass
class Peer:
    """One connection, and what the server said against it."""

    client: Client
    complaints: list[str] = field(default_factory=list)

    async def says(self, subject: str, *, reply: str = "") -> bool:
        """Whether the server lets us publish there; it answers in order, so a flush is enough."""
        await self.client.publish(subject, b"{}", reply=reply)
        return await self._unopposed()

    async def hears(self, subject: str, cb: Callable[[Msg], Awaitable[None]] | None = None) -> bool:
        """Whether the server lets us subscribe there."""
        await self.client.subscribe(subject, cb=cb)
        return await self._unopposed()

    async def collect(self, subject: str) -> list[Msg]:
        heard: list[Msg] = []

        async def keep(message: Msg) -> None:
            heard.append(message)

        assert await self.hears(subject, keep), subject
        return heard

    async def _unopposed(self) -> bool:
        await self.client.flush()
        await self.client.flush()  # the first one may overtake what it is to confirm
        await asyncio.sleep(0)  # the complaint came before the PONG, its callback is due now
        opposed, self.complaints[:] = list(self.complaints), []
        return not opposed


@asynccontextmanager
async def connected(server: Server, credentials: str | RawCredentials) -> AsyncIterator[Peer]:
    complaints: list[str] = []

    async def hear(error: Exception) -> None:
        complaints.append(str(error))

    client = await nats.connect(
        server.url, user_credentials=credentials, error_cb=hear, allow_reconnect=False
    )
    try:
        yield Peer(client, complaints)
    finally:
        await client.close()


def manager(server: Server) -> AbstractAsyncContextManager[Peer]:
    assert server.nats.keys
    return connected(server, str(server.nats.keys.service_credentials))


def node(
    server: Server, node_id: str, *, role: Role = Role.WORKER, answer_within: timedelta = SOON
) -> AbstractAsyncContextManager[Peer]:
    return user(server, permissions_of(role, node_id, answer_within=answer_within))


def user(server: Server, permissions: Permissions) -> AbstractAsyncContextManager[Peer]:
    return connected(server, credentials_of(server, permissions))


def credentials_of(server: Server, permissions: Permissions) -> RawCredentials:
    assert server.nats.keys
    account, key = server.nats.keys.account, Key.generate(Kind.USER)
    claims = user_claims(permissions, account=account.public)
    token = encode(claims, subject=key.public, name="u", by=account, now=datetime.now(UTC))
    return RawCredentials(credentials_file(token, key.seed))


async def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
