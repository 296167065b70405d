import asyncio
from typing import Any

import pytest
from django.conf import settings

from clustermgr import asgi
from clustermgr.lib.bus import NatsBus
from nodes.wire import PrefixObserved
from nodes.wire.prefixcache import OBSERVE
from scheduling.services import prefixing
from scheduling.services.prefixing import Prefixes
from tests.factories import make_node, make_replica

pytestmark = pytest.mark.django_db(transaction=True)


def scope(method: str, path: str) -> dict[str, Any]:
    headers = [(b"host", b"testserver"), (b"content-length", b"100")]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers if method == "POST" else headers[:1],
    }


async def ask(method: str, path: str, *, stalls: bool = False) -> int:
    words = iter([{"type": "http.request", "body": b"{", "more_body": stalls}])
    said: list[Any] = []

    async def receive() -> Any:
        return next(words, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        said.append(message)

    await asgi.application(scope(method, path), receive, send)
    return int(said[0]["status"])


def test_callers_who_never_finish_speaking_do_not_keep_others_waiting() -> None:
    async def crowd() -> int:
        stalled = [
            asyncio.create_task(ask("POST", "/api/node/register", stalls=True))
            for _ in range(asgi.AT_ONCE + 4)
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            status = await ask("GET", "/admin/login/")
        for task in stalled:
            task.cancel()
        await asyncio.gather(*stalled, return_exceptions=True)
        return status

    assert asyncio.run(crowd()) == 200


def test_a_whole_request_reaches_django_with_its_body() -> None:
    assert asyncio.run(ask("POST", "/api/node/register")) == 401


def test_the_process_says_that_it_lives() -> None:
    assert asyncio.run(ask("GET", "/healthz")) == 200


def test_the_server_learns_what_other_processes_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = make_replica(make_node())
    bus, other = NatsBus(settings.CLUSTER), NatsBus(settings.CLUSTER)
    ours = Prefixes(settings.CLUSTER, bus)
    monkeypatch.setattr(prefixing, "default", lambda: ours)
    said = PrefixObserved(model="llama", chain=(1, 2), node_id=str(replica.node_id), replica=0)

    async def serve() -> None:
        asked: asyncio.Queue[Any] = asyncio.Queue()
        told: asyncio.Queue[Any] = asyncio.Queue()
        await asked.put({"type": "lifespan.startup"})
        running = asyncio.create_task(asgi.application({"type": "lifespan"}, asked.get, told.put))
        assert (await told.get())["type"] == "lifespan.startup.complete"
        async with asyncio.timeout(60):
            while not len(ours.index):  # said again until somebody listens
                await asyncio.to_thread(other.publish, OBSERVE, said.encode())
        await asked.put({"type": "lifespan.shutdown"})
        await running

    asyncio.run(serve())
    bus.close()
    other.close()
    assert len(ours.index) == 2
