import asyncio
import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.db import connection, transaction
from django.test import Client

from backendops.api import door, stream
from backendops.api.door import ChangesDoor, Feed
from backendops.models import PendingBackendOp
from backendops.services import changes, streaming
from backendops.states import OpState
from clustermgr.embedded.parts import UVICORN
from clustermgr.lib.offloop import off_loop
from tests.api.clients import Caller, operator, read
from tests.factories import NOW, make_node, make_op, make_operation
from tests.services import free_port, until

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parent.parent.parent
PATH = "/api/operations/events"
PATIENCE = 60  # seconds, on a busy machine


class Listener:
    """A browser's EventSource as far as a server can tell."""

    def __init__(self, gate: ChangesDoor, **headers: str) -> None:
        self.status = 0
        self.text = ""
        self._gone = asyncio.Event()
        self.stalls = False
        self._told = False
        sent = [(name.lower().replace("_", "-"), value) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": "GET",
            "path": PATH,
            "query_string": b"",
            "headers": [(b"host", b"testserver")]
            + [(name.encode(), value.encode()) for name, value in sent],
        }
        self.task = asyncio.create_task(gate.answer(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if not self._told:
            self._told = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()
        if self.stalls and self.text:
            await asyncio.Event().wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.text.split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    async def sees(self, condition: Callable[["Listener"], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        self._gone.set()
        await self.task


def played(scene: Callable[[ChangesDoor], Awaitable[None]]) -> None:
    """Run a scene with a door of its own, which looks very often."""

    async def play() -> None:
        gate = ChangesDoor(get_asgi_application())
        keeping = asyncio.create_task(gate.keep())
        try:
            await scene(gate)
        finally:
            keeping.cancel()

    asyncio.run(play())


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "POLL_EVERY", 0.02)


@pytest.fixture
def bearer(root: Caller) -> dict[str, str]:
    return {"Authorization": f"Bearer {root.secret}"}


def touch(op: PendingBackendOp, state: OpState = OpState.RUNNING) -> None:
    rows = PendingBackendOp.objects.filter(pk=op.pk)
    rows.update(state=state, lease_until=NOW, change=changes.NEXT_CHANGE)


def test_a_listener_is_told_each_change_of_an_op(bearer: dict[str, str]) -> None:
    op = make_op(make_node())
    operation = make_operation(op)

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, **bearer)
        await listener.sees(lambda one: "event: hello" in one.text)
        await off_loop(touch, op)
        await listener.sees(lambda one: len(one.events) == 2)
        await off_loop(touch, op, OpState.QUEUED)
        await listener.sees(lambda one: len(one.events) == 3)
        states = [event["state"] for event in listener.events[1:]]
        assert states == ["running", "queued"]
        last = listener.events[-1]
        assert (last["op"], last["operations"]) == (op.pk, [str(operation.pk)])
        assert f"id: {last['change']}\n" in listener.text
        await listener.leave()

    played(scene)


def test_what_changes_between_the_greeting_and_the_first_look_is_told(
    bearer: dict[str, str],
) -> None:
    op = make_op(make_node())

    async def scene() -> None:
        gate = ChangesDoor(get_asgi_application())
        listener = Listener(gate, **bearer)
        await listener.sees(lambda one: "event: hello" in one.text)
        await off_loop(touch, op)
        keeping = asyncio.create_task(gate.keep())  # as late as a busy machine lets it run
        try:
            await listener.sees(lambda one: "running" in one.text)
        finally:
            keeping.cancel()
        await listener.leave()

    asyncio.run(scene())


def test_whoever_comes_back_is_told_what_was_missed(bearer: dict[str, str]) -> None:
    ops = [make_op(make_node(name)) for name in ("one", "two")]
    touch(ops[0])
    seen = streaming.newest()
    touch(ops[1])

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, **bearer, Last_Event_ID=str(seen))
        await listener.sees(lambda one: ops[1].pk in [event["op"] for event in one.events])
        assert "hello" not in listener.text
        await listener.leave()

    played(scene)


def test_whoever_missed_too_much_is_told_to_read_the_list(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_REPLAYED", 1)
    for name in ("one", "two"):
        touch(make_op(make_node(name)))

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, **bearer, Last_Event_ID="1")
        await listener.sees(lambda one: "event: reset" in one.text)
        assert listener.events == [{"change": newest}]
        await listener.leave()

    newest = streaming.newest()
    played(scene)


def test_a_number_that_is_committed_late_is_not_missed() -> None:
    early, late = make_op(make_node("early")), make_op(make_node("late"))
    feed = Feed(streaming.newest())
    taken, seen = threading.Event(), threading.Event()

    def slow() -> None:
        with transaction.atomic():
            touch(late)  # has the lower number
            taken.set()
            seen.wait(PATIENCE)
        connection.close()

    thread = threading.Thread(target=slow)
    thread.start()
    taken.wait(PATIENCE)
    touch(early)
    first = feed.look()
    seen.set()
    thread.join()
    second = feed.look()
    assert f'"op":{early.pk},'.encode() in first
    assert f'"op":{late.pk},'.encode() not in first
    assert f'"op":{late.pk},'.encode() in second
    assert f'"op":{early.pk},'.encode() not in second
    assert feed.look() == b""


def test_thirty_listeners_share_one_look(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = Feed.look

    def counted(feed: Feed) -> bytes:
        looks.append(1)
        return real(feed)

    monkeypatch.setattr(Feed, "look", counted)
    monkeypatch.setattr(door, "POLL_EVERY", 0.5)
    op = make_op(make_node())

    async def scene(gate: ChangesDoor) -> None:
        crowd = [Listener(gate, **bearer) for _ in range(30)]
        for one in crowd:
            await one.sees(lambda one: "hello" in one.text)
        looks.clear()
        await off_loop(touch, op)
        for one in crowd:
            await one.sees(lambda one: len(one.events) == 2)
        assert len(looks) < 15
        for one in crowd:
            await one.leave()

    played(scene)


def test_silence_is_broken_by_a_comment(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.PING_EVERY <= 15
    monkeypatch.setattr(door, "PING_EVERY", 0.01)

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, **bearer)
        await listener.sees(lambda one: ": ping" in one.text)
        await listener.leave()

    played(scene)


def test_there_is_room_for_so_many_and_a_place_that_is_left_is_free(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_LISTENERS", 1)

    async def scene(gate: ChangesDoor) -> None:
        first = Listener(gate, **bearer)
        await first.sees(lambda one: "hello" in one.text)
        second = Listener(gate, **bearer)
        await second.task
        assert (second.status, json.loads(second.text)["code"]) == (503, "too_many_listeners")
        await first.leave()
        third = Listener(gate, **bearer)
        await third.sees(lambda one: "hello" in one.text)
        await third.leave()

    played(scene)


def test_a_listener_who_does_not_listen_keeps_nobody_waiting_and_nothing_in_memory(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_WAITING", 2)
    op = make_op(make_node())

    async def scene(gate: ChangesDoor) -> None:
        slow, quick = Listener(gate, **bearer), Listener(gate, **bearer)
        slow.stalls = True
        await quick.sees(lambda one: "hello" in one.text)
        for count in range(2, 8):
            await off_loop(touch, op)
            await quick.sees(partial(_heard, count))
        assert all(queue.qsize() <= 2 for queue in gate._listeners)
        slow.task.cancel()
        await quick.leave()

    played(scene)


def test_a_token_that_was_revoked_ends_the_stream(
    bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "RECHECK_EVERY", 0.0)
    monkeypatch.setattr(door, "PING_EVERY", 0.01)

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, **bearer)
        await listener.sees(lambda one: "hello" in one.text)
        await off_loop(lambda: User.objects.update(is_active=False))
        async with asyncio.timeout(PATIENCE):
            await listener.task

    played(scene)


def test_only_who_may_view_operations_listens(root: Caller) -> None:
    nobody, viewer = operator("view_backendnode"), operator("view_operation")
    cases = [({}, 401), ({"Authorization": "Bearer cm_made-up"}, 401), ({"Cookie": "a=b"}, 401)]
    cases.append(({"Authorization": f"Bearer {nobody.secret}"}, 403))

    async def scene(gate: ChangesDoor) -> None:
        for headers, status in cases:
            refused = Listener(gate, **headers)
            await refused.task
            assert refused.status == status, headers
        bad = Listener(gate, Authorization=f"Bearer {root.secret}", Last_Event_ID="-1")
        await bad.task
        assert bad.status == 400
        allowed = Listener(gate, Authorization=f"Bearer {viewer.secret}")
        await allowed.sees(lambda one: "hello" in one.text)
        await allowed.leave()

    played(scene)


def test_a_browser_listens_with_its_session() -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("clicker"))
    cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"

    async def scene(gate: ChangesDoor) -> None:
        listener = Listener(gate, Cookie=cookie)
        await listener.sees(lambda one: "hello" in one.text)
        await listener.leave()

    played(scene)


def test_without_asgi_one_batch_is_answered(root: Caller) -> None:
    op = make_op(make_node())
    touch(op)
    reply = root.get(PATH, **{"Last-Event-ID": "0"})
    assert reply.headers["Content-Type"] == "text/event-stream"
    assert f'"op":{op.pk}'.encode() in reply.content
    assert b"event: hello" in root.get(PATH, Accept="text/event-stream").content
    refused = root.get(PATH, **{"Last-Event-ID": "abc"})
    assert (refused.status_code, read(refused)["code"]) == (400, "invalid_input")


def test_an_open_stream_does_not_keep_a_real_server_from_stopping(root: Caller) -> None:
    port, url = free_port(), settings.DATABASES["default"]["NAME"]
    database = settings.DATABASE_URL.rpartition("/")[0] + f"/{url}"
    command = [*UVICORN, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": database})
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(f"{address}/healthz"))
        asked = urllib.request.Request(
            f"{address}{PATH}", headers={"Authorization": f"Bearer {root.secret}"}
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE) as reply:
            assert reply.readline() == b"retry: 3000\n"
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE) is not None
            assert b"event: hello" in reply.read()
    finally:
        server.kill()
        server.wait()


def _heard(count: int, listener: Listener) -> bool:
    return len(listener.events) >= count


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
