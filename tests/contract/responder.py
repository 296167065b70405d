"""Plays a worker: a NATS client on a thread of its own that treats messages as scripted."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

Script = Callable[[Client, Msg], Awaitable[None]]


async def echo(client: Client, message: Msg) -> None:
    await message.respond(message.data)


async def silence(client: Client, message: Msg) -> None:
    pass


@contextmanager
def responding(
    url: str, subject: str, script: Script = echo, **options: Any
) -> Iterator[list[bytes]]:
    """Listen to `subject` while the block runs; yields the payloads that came."""
    heard: list[bytes] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        start = _start(url, subject, script, heard, options)
        client = asyncio.run_coroutine_threadsafe(start, loop).result(60)
        try:
            yield heard
        finally:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


async def _start(
    url: str, subject: str, script: Script, heard: list[bytes], options: dict[str, Any]
) -> Client:
    async def quiet(error: Exception) -> None:
        pass

    client = await nats.connect(
        url,
        **_login(url),
        max_reconnect_attempts=-1,
        error_cb=quiet,
        **options,
    )

    async def play(message: Msg) -> None:
        heard.append(message.data)
        await script(client, message)

    await client.subscribe(subject, cb=play)
    await client.flush()
    await client.flush()  # the first one overtakes the subscription
    return client


def _login(url: str) -> dict[str, Any]:
    # nats-py takes user and password from a URL as they stand, percent signs and all.
    parts = urlsplit(url)
    login = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return {"reconnect_time_wait": 0.05} | (login if parts.username else {})
