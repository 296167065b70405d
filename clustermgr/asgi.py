"""The front door: raw handlers for what is hot, Django for everything else."""

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clustermgr.settings")
django = get_asgi_application()

# WhiteNoise reads files synchronously. They are small, and browsers keep them for an hour.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Each Django request takes a thread and perhaps a connection of a pool of 20. Beyond this
# many, requests wait in line here instead of timing out in the pool.
AT_ONCE = 16
_seats = asyncio.Semaphore(AT_ONCE)
# Probes must not stand in the line they are to report.
UNQUEUED = frozenset({"/readyz"})


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["path"] == "/healthz":
        await _healthz(send)
    elif scope["path"] in UNQUEUED:
        await django(scope, receive, send)
    else:
        async with _seats:
            await django(scope, receive, send)


async def _healthz(send: Send) -> None:
    """The process is alive; whether it can work is /readyz's question."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
