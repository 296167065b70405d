import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.worker_machine.loops import in_loop
from worker.http import Pages
from worker.machine import Line
from worker.processes import RingLogs

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
BEARER = {"Authorization": "Bearer s3cret"}


def said(second: int, text: str, stream: str = "stdout") -> Line:
    return Line(timestamp=NOON + timedelta(seconds=second), stream=stream, text=text)


def shown(second: int, text: str, stream: str = "stdout") -> dict[str, str]:
    return {"timestamp": f"2026-08-01T12:00:0{second}+00:00", "stream": stream, "text": text}


def some_logs() -> RingLogs:
    logs = RingLogs()
    logs.add("org/qwen#0", said(1, "one"))
    logs.add("org/qwen#1", said(2, "two", "stderr"))
    logs.add("org/qwen#0", said(3, "three"))
    logs.add("llama#0", said(4, "four"))
    return logs


@asynccontextmanager
async def serving(
    logs: RingLogs, *, token: str = "s3cret", problem: str = ""
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    pages = Pages(logs=logs, token=token, why_not_ready=lambda: problem)
    runner = web.AppRunner(pages.application(), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        try:
            yield session, f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()


@in_loop
async def test_probes_need_no_token() -> None:
    async with serving(RingLogs()) as (session, url):
        for method in ("GET", "HEAD"):
            for path in ("/healthz", "/readyz"):
                async with session.request(method, url + path) as reply:
                    assert reply.status == 200
                    assert await reply.text() == ("ok" if method == "GET" else "")


@in_loop
async def test_one_that_hears_no_commands_is_alive_but_not_ready() -> None:
    async with serving(RingLogs(), problem="NATS is not connected") as (session, url):
        async with session.get(url + "/healthz") as reply:
            assert reply.status == 200
        async with session.get(url + "/readyz") as reply:
            assert reply.status == 503
            assert await reply.text() == "not ready: NATS is not connected"


@pytest.mark.parametrize("header", ["", "Bearer wrong", "s3cret", "bearer s3cret", "Bearer s3crét"])
@pytest.mark.parametrize("path", ["", "/llama", "/llama/ws"])
@in_loop
async def test_logs_are_for_those_who_know_the_token(header: str, path: str) -> None:
    async with serving(some_logs()) as (session, url):
        headers = {"Authorization": header} if header else {}
        async with session.get(f"{url}/v1/backend-logs{path}", headers=headers) as reply:
            assert reply.status == 401


@in_loop
async def test_without_a_token_the_worker_is_open() -> None:
    async with (
        serving(some_logs(), token="") as (session, url),
        session.get(f"{url}/v1/backend-logs") as reply,
    ):
        assert await reply.json() == ["llama", "org/qwen"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("org/qwen", [shown(1, "one"), shown(2, "two", "stderr"), shown(3, "three")]),
        ("org/qwen#1", [shown(2, "two", "stderr")]),
        ("llama", [shown(4, "four")]),
        ("unknown", []),
        ("org/qwen#7", []),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
@in_loop
async def test_lines_of_a_model_or_of_one_replica_however_often_encoded(
    name: str, lines: list[dict[str, str]], times: int
) -> None:
    path = name
    for _ in range(times):
        path = quote(path, safe="")
    async with serving(some_logs()) as (session, url):
        where = f"{url}/v1/backend-logs/{path}"
        async with session.get(URL(where, encoded=True), headers=BEARER) as reply:
            assert reply.status == 200
            assert await reply.json() == lines


@in_loop
async def test_a_follower_hears_what_was_and_what_comes() -> None:
    logs = some_logs()
    async with serving(logs) as (session, url):
        where = f"{url}/v1/backend-logs/org%252Fqwen/ws"
        async with session.ws_connect(URL(where, encoded=True), headers=BEARER) as socket:
            first = await socket.receive_json(timeout=60)
            assert first["type"] == "initial"
            assert [line["text"] for line in first["lines"]] == ["one", "two", "three"]
            logs.add("org/qwen#1", said(5, "five"))
            logs.add("llama#0", said(6, "not for them"))
            logs.add("org/qwen#0", said(7, "seven"))
            assert await socket.receive_json(timeout=60) == {
                "type": "line",
                "line": shown(5, "five"),
            }
            assert (await socket.receive_json(timeout=60))["line"]["text"] == "seven"


@in_loop
async def test_a_follower_that_talks_too_much_is_cut_off() -> None:
    async with (
        serving(some_logs()) as (session, url),
        session.ws_connect(f"{url}/v1/backend-logs/llama/ws", headers=BEARER) as socket,
    ):
        await socket.receive_json(timeout=60)
        await socket.send_str("x" * 5000)
        message = await socket.receive(timeout=60)
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


@in_loop
async def test_followers_are_told_when_the_worker_goes() -> None:
    async with aiohttp.ClientSession() as outside:
        async with serving(some_logs()) as (_, url):
            socket = await outside.ws_connect(f"{url}/v1/backend-logs/llama/ws", headers=BEARER)
            await socket.receive_json(timeout=60)
            hearing = asyncio.create_task(socket.receive(timeout=60))
        assert (await hearing).data == 1001
