"""`backend.list` of 1,000 nodes through the gateway, against bare nats-py doing the same."""

import asyncio
import json
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from uuid import UUID

import nats
from django.conf import settings
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench import harness
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.wire import LIST_REQUEST, InstalledBackend, ListReply
from nodes.wire.subjects import LIST_BACKENDS

NODES = [UUID(int=number) for number in range(1, 1001)]
AT_ONCE = 64
ROUNDS = 15
REPLY = ListReply(
    backends=tuple(
        InstalledBackend(
            name=f"cuda12-backend-{number}",
            is_system=False,
            is_meta=False,
            installed_at="2026-08-01T10:00:00Z",
            gallery_url="https://example.com/galleries/index.yaml",
            version=f"1.{number}.0",
            digest=f"sha256:{number:064x}",
        )
        for number in range(5)
    )
).encode()


def run() -> None:
    url = settings.CLUSTER.nats_url
    bus = NatsBus(settings.CLUSTER)
    with (
        harness.aside(_answer, url),
        ThreadPoolExecutor(AT_ONCE) as pool,
        asyncio.Runner() as runner,
    ):
        gateway = NodeGateway(bus)
        client = runner.run(nats.connect(url))
        ways: dict[str, Callable[[], None]] = {
            f"bare nats-py, {AT_ONCE} at once": lambda: runner.run(_bare(client)),
            "gateway, list_backends_of": lambda: _at_once(gateway),
            f"gateway, {AT_ONCE} threads": lambda: _by_threads(gateway, pool),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):  # in turns, so that a noisy moment of the machine meets them all
            for way, work in ways.items():
                times[way].append(harness.milliseconds(work, rounds=1))
        runner.run(client.close())
        bus.close()
    medians = {way: statistics.median(taken) for way, taken in times.items()}
    bare = next(iter(medians.values()))
    print(f"{len(NODES)} nodes, all in one answering process; {ROUNDS} rounds; the aim is 2.00x")
    harness.table(
        ("", "median ms", "best ms", "times bare"),
        [(way, taken, min(times[way]), f"{taken / bare:.2f}x") for way, taken in medians.items()],
    )


def _at_once(gateway: NodeGateway) -> None:
    told = gateway.list_backends_of(NODES).values()
    _complete(sum(len(backends) for backends in told if isinstance(backends, tuple)))


def _by_threads(gateway: NodeGateway, pool: ThreadPoolExecutor) -> None:
    _complete(sum(len(backends) for backends in pool.map(gateway.list_backends, NODES)))


async def _bare(client: Client) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(node: UUID) -> int:
        async with turn:
            reply = await client.request(LIST_BACKENDS.of(node), LIST_REQUEST, timeout=30)
            return len(json.loads(reply.data)["backends"])

    _complete(sum(await asyncio.gather(*map(ask, NODES))))


def _complete(heard: int) -> None:
    if heard != 5 * len(NODES):
        raise RuntimeError(f"only {heard} backends were listed")


def _answer(url: str, ready: Event) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(REPLY)

    async def serve() -> None:
        client = await nats.connect(url)
        for node in NODES:
            await client.subscribe(LIST_BACKENDS.of(node), cb=answer)
        await client.flush()
        await client.flush()  # the first one overtakes the subscriptions
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())
