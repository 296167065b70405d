"""`python -m bench.ears COUNT`: as many bare NATS connections as a fleet has, and nothing else."""

import asyncio
import os
import sys

import nats
from nats.aio.msg import Msg

from worker.wire import subjects

PATHS = [value for name, value in vars(subjects).items() if name.isupper() and name[0] != "_"]


async def listen(url: str, count: int) -> None:
    async def ignore(message: Msg) -> None:
        return None

    clients = []
    for number in range(count):
        client = await nats.connect(url, ping_interval=20)
        for path in PATHS:
            await client.subscribe(subjects.of(f"bare-{number}", path), cb=ignore)
        clients.append(client)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(listen(os.environ["LOCALAI_NATS_URL"], int(sys.argv[1])))
