"""The front door: raw handlers for what is hot, Django for everything else."""

import asyncio
import contextlib
import gc
import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.utils import timezone

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clustermgr.settings")
django.setup()

# These need the apps to be loaded
from backendops.api.door import ChangesDoor  # noqa: E402
from clustermgr.callers import caller  # noqa: E402
from clustermgr.lib.stopping import on_stop  # noqa: E402
from nodes.api.door import HeartbeatDoor  # noqa: E402
from nodes.api.logdoor import LogDoor  # noqa: E402
from scheduling.api.routedoor import RouteDoor  # noqa: E402
from scheduling.services import prefixing  # noqa: E402

# WhiteNoise reads files synchronously. They are small, and browsers keep them for an hour.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Each Django request takes a thread and perhaps a connection of a pool of 20. Beyond this
# many, requests wait in line here instead of timing out in the pool.
AT_ONCE = 16
_seats = asyncio.Semaphore(AT_ONCE)
BODY_WITHIN = 15.0  # seconds
BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
# Probes must not stand in the line they are to report.
UNQUEUED = frozenset({"/readyz"})

_django = get_asgi_application()


async def _seated(scope: Scope, receive: Receive, send: Send) -> None:
    """Hand a request to Django once it is there: nobody holds a seat while still speaking."""
    if scope["method"] not in BODILESS:
        try:
            async with asyncio.timeout(BODY_WITHIN):
                receive = await _whole(receive)
        except TimeoutError:
            await _answer(send, 408, b"The request took too long to arrive.")
            return
    async with _seats:
        await _django(scope, receive, send)


async def _whole(receive: Receive) -> Receive:
    """Take in the body, no more of it than Django would; the result tells it once more."""
    messages = [await receive()]
    size = len(messages[0].get("body", b""))
    while messages[-1].get("more_body") and size <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
    told = iter(messages)

    async def again() -> Any:
        return next(told, None) or await receive()

    return again


heartbeats = HeartbeatDoor(_seated)
changes = ChangesDoor(_seated)
logs = LogDoor(caller)
routes = RouteDoor(_seated)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif logs.takes(scope):
        await logs.answer(scope, receive, send)
    elif heartbeats.takes(scope):
        await heartbeats.answer(scope, receive, send)
    elif routes.takes(scope):
        await routes.answer(scope, receive, send)
    elif changes.takes(scope):
        await changes.answer(scope, receive, send)
    elif scope["path"] == "/healthz":
        # The process is alive; whether it can work is /readyz's question.
        await _answer(send, 200, b"ok")
    elif scope["path"] in UNQUEUED:
        await _django(scope, receive, send)
    else:
        await _seated(scope, receive, send)


async def _answer(send: Send, status: int, words: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(words))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Keep the doors, and what prompts were seen, for as long as the server runs."""
    await receive()  # lifespan.startup
    kept = (heartbeats.keep(), changes.keep(), prefixing.default().keep(clock=timezone.now))
    keeping = [asyncio.create_task(one) for one in kept]
    gc.freeze()  # code is there for good: looking it through would hold all requests up
    with on_stop(changes.close), on_stop(routes.close):
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    for task in keeping:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await send({"type": "lifespan.shutdown.complete"})
