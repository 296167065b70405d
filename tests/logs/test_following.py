import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from aiohttp import web as aioweb
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from clustermgr import tokens
from nodes import workerhttp
from nodes.api import logdoor
from nodes.models import BackendNode
from tests.factories import NOW, make_token
from tests.logs.served import web
from tests.logs.worker import SECRET, LogWorker, line
from tests.services import free_port, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def place(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), web() as running:
        yield running


@pytest.fixture
def reader(transactional_db: None) -> User:
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_logs"))
    return user


@pytest.fixture
def key(reader: User) -> dict[str, str]:
    _, secret = tokens.issue(reader, name="tests", now=NOW)
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def following(
    place: str, node: Any, headers: dict[str, str], model: str = "llama"
) -> Iterator[ClientConnection]:
    path = f"/ws/nodes/{getattr(node, 'pk', node)}/backend-logs/{quote(model, safe='')}"
    with connect(
        f"ws://{place}{path}",
        additional_headers=headers,
        origin=None,
        open_timeout=60,
        max_size=None,
    ) as socket:
        yield socket


def heard(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=60))


def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """How the other side ended it, whatever it said before."""
    with suppress(ConnectionClosed):
        while True:
            socket.recv(timeout=60)
    return socket.close_code, socket.close_reason


def refused(place: str, node: Any, headers: dict[str, str], model: str = "llama") -> int:
    with pytest.raises(InvalidStatus) as refusal, following(place, node, headers, model):
        pass
    reply = refusal.value.response
    assert json.loads(reply.body or b"")["error"]["code"] == reply.status_code
    return int(reply.status_code)


def test_row_80_a_follower_gets_what_was_printed_and_then_each_line(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    with following(place, node, key, "llama#1") as socket:
        assert heard(socket) == {"type": "initial", "lines": [line("hello from one", second=2)]}
        until(lambda: bool(worker.sockets))
        worker.print("llama#1", "and more", second=9)
        assert heard(socket) == {"type": "line", "line": line("and more", second=9)}


def test_a_process_that_printed_nothing_is_followed_from_the_start(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    with following(place, node, key, "silent#0") as socket:
        assert heard(socket) == {"type": "initial", "lines": []}
        until(lambda: bool(worker.sockets))
        worker.say({"type": "weather", "rain": True})
        worker.print("silent#0", "a word")
        assert heard(socket)["line"]["text"] == "a word"


def test_who_leaves_is_gone_for_the_worker_too(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    with following(place, node, key) as socket:
        heard(socket)
        until(lambda: len(worker.sockets) == 1)
    until(lambda: not worker.sockets)


def test_a_worker_that_ends_the_log_is_told_with_1011(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    with following(place, node, key) as socket:
        heard(socket)
        until(lambda: bool(worker.sockets))
        worker.hang_up()
        assert closed(socket) == (1011, "The worker ended the log.")


def test_a_worker_out_of_reach_is_told_with_1011_and_the_heartbeat(
    place: str, node: BackendNode, key: dict[str, str]
) -> None:
    BackendNode.objects.update(http_address=f"127.0.0.1:{free_port()}")
    with following(place, node, key) as socket:
        code, words = closed(socket)
    assert code == 1011
    assert words
    assert words.startswith("Nobody answers at 127.0.0.1")
    assert "The last heartbeat of gpu-1" in words


def test_a_token_that_we_do_not_have_is_told_and_not_guessed(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    BackendNode.objects.update(join_token=make_token(name="rack 9"))
    with following(place, node, key) as socket:
        code, words = closed(socket)
    assert (code, str(words).startswith("gpu-1 joined with the token rack 9")) == (1011, True)
    assert worker.heard == []


@pytest.mark.parametrize("frame", ["not json", "[]", '{"type": "initial", "lines": {}}'])
def test_frames_that_are_no_log_end_it(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str], frame: str
) -> None:
    with following(place, node, key) as socket:
        heard(socket)
        until(lambda: bool(worker.sockets))
        worker.say(frame)
        code, words = closed(socket)
    assert (code, "unreadable" in str(words)) == (1011, True)


def test_a_frame_larger_than_any_log_ends_it(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    with following(place, node, key) as socket:
        heard(socket)
        until(lambda: bool(worker.sockets))
        with suppress(OSError):  # we hang up before all of it is said
            worker.say("x" * (workerhttp.MAX_BYTES + 1))
        assert closed(socket) == (1011, "The worker sends something that is no log.")


def test_a_thousand_long_lines_come_through(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    worker.logs = {"llama#0": [line(f"{number} " + "x" * 2000) for number in range(1000)]}
    with following(place, node, key) as socket:
        assert heard(socket)["lines"] == worker.logs["llama#0"]


@pytest.mark.parametrize("status", [302, 307])
def test_a_worker_that_sends_followers_elsewhere_is_not_obeyed(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str], status: int
) -> None:
    async def elsewhere(_: Any) -> aioweb.Response:
        return aioweb.Response(status=status, headers={"Location": f"http://{thief.address}/"})

    with LogWorker().running() as thief:
        worker.instead = elsewhere
        with following(place, node, key) as socket:
            code, words = closed(socket)
        assert thief.heard == []
    assert (code, "sends us elsewhere" in str(words)) == (1011, True)


def test_a_page_of_ours_follows_with_its_session(
    place: str, node: BackendNode, reader: User
) -> None:
    client = Client()
    client.force_login(reader)
    cookie = {"Cookie": f"sessionid={client.cookies['sessionid'].value}"}
    with following(place, node, {**cookie, "Origin": f"http://{place}"}) as socket:
        assert heard(socket)["type"] == "initial"
    assert refused(place, node, {**cookie, "Origin": "https://evil.example"}) == 403
    assert refused(place, node, cookie) == 401  # no browser leaves its Origin out
    client.logout()
    assert refused(place, node, {**cookie, "Origin": f"http://{place}"}) == 401


def test_who_is_nobody_or_may_not_is_refused_before_the_worker_hears_of_it(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str], reader: User
) -> None:
    assert refused(place, node, {}) == 401
    assert refused(place, node, {"Authorization": "Bearer cm_made-up"}) == 401
    assert refused(place, node, {"Authorization": f"Bearer {SECRET}"}) == 401
    assert refused(place, node, {**key, "Origin": "https://evil.example"}) == 403
    assert refused(place, node, {"Cookie": "sessionid=[;;=,", "Origin": f"http://{place}"}) == 401
    reader.user_permissions.clear()
    assert refused(place, node, key) == 403
    assert worker.heard == []


def test_an_unknown_node_is_not_found(place: str, key: dict[str, str]) -> None:
    assert refused(place, uuid4(), key) == 404
    assert refused(place, "gpu-1", key) == 404


def test_so_many_may_follow_one_node_and_no_more(
    place: str, node: BackendNode, worker: LogWorker, key: dict[str, str]
) -> None:
    sockets = [following(place, node, key) for _ in range(logdoor.PER_NODE)]
    opened = [socket.__enter__() for socket in sockets]
    for socket in opened:
        heard(socket)
    with following(place, node, key) as one_more:
        code, words = closed(one_more)
    assert (code, "Too many follow" in str(words)) == (1013, True)
    for manager in sockets:
        manager.__exit__(None, None, None)
    until(lambda: not worker.sockets)
    with following(place, node, key) as again:
        assert heard(again)["type"] == "initial"


def test_who_loses_the_permission_loses_the_log(
    node: BackendNode, worker: LogWorker, reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logdoor, "CHECK_EVERY", 0.05)
    said: list[dict[str, Any]] = []
    came = iter([{"type": "websocket.connect"}])

    async def receive() -> Any:
        return next(came, None) or await asyncio.Event().wait()

    async def send(message: dict[str, Any]) -> None:
        said.append(message)
        if message["type"] == "websocket.send":
            await asyncio.to_thread(in_a_thread, reader.user_permissions.clear)

    path = f"/ws/nodes/{node.pk}/backend-logs/llama"
    door = logdoor.LogDoor(lambda _: User.objects.get(pk=reader.pk))
    asyncio.run(door.answer({"type": "websocket", "path": path}, receive, send))
    assert [message["type"] for message in said] == [
        *("websocket.accept", "websocket.send", "websocket.close")
    ]
    assert said[-1]["code"] == 1008
    until(lambda: not worker.sockets)


def in_a_thread(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()
