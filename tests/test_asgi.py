import asyncio
from typing import Any

import pytest

from clustermgr import asgi

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
        async with asyncio.timeout(10):
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
