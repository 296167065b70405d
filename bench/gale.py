"""`python -m bench.gale COUNT SECONDS`: workers that tell their progress four times a second.

They wait until COUNT installs were asked for, print the moment, and are done SECONDS after it.
A percentage is the time since that moment: who reads one knows when it was sent.
"""

import asyncio
import json
import os
import sys
import time

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from nodes.wire import InstallReply, subjects

EVERY = 0.25  # seconds
MOST_AT_ONCE = 20  # between two breaths of the loop: no node tells much later than it should


class Gale:
    def __init__(self, client: Client, count: int, seconds: float) -> None:
        self._client = client
        self._count = count
        self._seconds = seconds
        self._asked: list[tuple[str, str, str]] = []  # (progress subject, head, inbox)
        self._told = 0

    async def ask(self, message: Msg) -> None:
        """An install begins."""
        node, request = message.subject.split(".")[1], json.loads(message.data)
        subject = subjects.INSTALL_PROGRESS.of(node, op=request["op_id"])
        names = {"op_id": request["op_id"], "node_id": node, "backend": request["backend"]}
        head = json.dumps({**names, "phase": "downloading", "total": "200.0 MiB"})[:-1]
        self._asked.append((subject, head, message.reply))

    async def run(self) -> None:
        while len(self._asked) < self._count:
            await asyncio.sleep(EVERY)
        began = time.monotonic()
        print(began, flush=True)
        due, seq = began, 0
        while time.monotonic() - began < self._seconds:
            seq += 1
            await self._tell(began, seq)
            due += EVERY
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        print(f"{self._told / (time.monotonic() - began):.0f}", flush=True)
        for _, _, inbox in self._asked:
            await self._client.publish(inbox, InstallReply(success=True, address="h:1").encode())
        await self._client.flush()

    async def _tell(self, began: float, seq: int) -> None:
        for place, (subject, head, _) in enumerate(self._asked):
            share = min((time.monotonic() - began) / self._seconds, 1.0)
            tail = f'"percentage": {100 * share}, "current": "{200 * share:.1f} MiB"'
            await self._client.publish(subject, f'{head}, {tail}, "seq": {seq}}}'.encode())
            self._told += 1
            if place % MOST_AT_ONCE == 0:
                await asyncio.sleep(0)


async def main(url: str, count: int, seconds: float) -> None:
    client = await nats.connect(url)
    gale = Gale(client, count, seconds)
    await client.subscribe(subjects.INSTALL.any_of("NODE").replace("NODE", "*"), cb=gale.ask)
    await client.flush()
    print("ready", flush=True)
    await gale.run()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(os.environ["LOCALAI_NATS_URL"], int(sys.argv[1]), float(sys.argv[2])))
