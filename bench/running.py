"""Workers that only say what they run, all of them in one process that knows nothing of Django."""

import asyncio
import json
from contextlib import AbstractContextManager
from multiprocessing.synchronize import Event

import nats
from nats.aio.msg import Msg

from bench import harness
from nodes.wire.subjects import RUNNING_MODELS

EACH = 5  # replicas of each node


def workers(url: str) -> AbstractContextManager[None]:
    """As many as are asked for: they answer under any name."""
    return harness.aside(_answer, url)


def _answer(url: str, ready: Event) -> None:
    running = [
        {
            "model_id": f"model-{number}",
            "replica_index": 0,
            "address": f"127.0.0.1:{50052 + number}",
        }
        for number in range(EACH)
    ]
    reply = json.dumps({"models": running}).encode()

    async def answer(message: Msg) -> None:
        await message.respond(reply)

    async def serve() -> None:
        client = await nats.connect(url)
        await client.subscribe(f"nodes.*.{RUNNING_MODELS.path}", cb=answer)
        await client.flush()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())
