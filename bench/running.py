"""Workers that only say what they run, all of them in one process that knows nothing of Django."""

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event

import nats
from nats.aio.msg import Msg

from nodes.wire.subjects import RUNNING_MODELS

EACH = 5  # replicas of each node


@contextmanager
def workers(url: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_answer, args=(url, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("the answering process did not start")
        yield
    finally:
        process.kill()
        process.join()


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
