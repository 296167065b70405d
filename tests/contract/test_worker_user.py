import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from clustermgr.embedded.nats import Nats
from tests.services import free_port, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nats]:
    wanted = Nats(
        home=tmp_path, host="127.0.0.1", port=free_port(), password="ours", worker_password="theirs"
    )
    wanted.configure()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(wanted.command(), stdout=log, stderr=log)
    until(wanted.ready)
    yield wanted
    process.kill()
    process.wait(10)


async def connected(url: str, complaints: list[str]) -> Client:
    async def hear(error: Exception) -> None:
        complaints.append(str(error).lower())

    return await nats.connect(url, error_cb=hear, allow_reconnect=False)


async def complaint_about(client: Client, complaints: list[str]) -> str:
    """What the server said about the last act; it answers in order, so a flush is enough."""
    await client.flush()
    for _ in range(50):
        if complaints:
            return complaints[-1]
        await asyncio.sleep(0.02)
    return ""


def test_a_worker_hears_commands_and_answers_them(server: Nats) -> None:
    async def talk() -> bytes:
        worker = await connected(server.worker_url, [])

        async def answer(message: Msg) -> None:
            await message.respond(b"here")

        await worker.subscribe("nodes.n1.models.running", cb=answer)
        await worker.flush()
        manager = await connected(server.url, [])
        reply = await manager.request("nodes.n1.models.running", b"{}", timeout=5)
        await worker.close()
        await manager.close()
        return reply.data

    assert asyncio.run(talk()) == b"here"


def test_a_worker_may_not_command_and_may_not_listen_to_the_rest(server: Nats) -> None:
    async def trespass() -> list[str]:
        complaints: list[str] = []
        worker = await connected(server.worker_url, complaints)
        await worker.publish("nodes.n2.backend.delete", b"{}")
        first = await complaint_about(worker, complaints)
        complaints.clear()
        await worker.subscribe("prefixcache.>")
        second = await complaint_about(worker, complaints)
        await worker.close()
        return [first, second]

    said = asyncio.run(trespass())
    assert all("permissions violation" in words for words in said), said
