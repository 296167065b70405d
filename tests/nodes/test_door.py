import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.db import connection

from nodes.api.door import STORING, HeartbeatDoor
from nodes.models import BackendNode, JoinToken
from nodes.services import jointokens, registration, retirement
from tests.factories import make_node, make_request

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
Session = Callable[["Caller"], Coroutine[Any, Any, None]]


class Caller:
    """A worker at the door, with Django behind it."""

    def __init__(self) -> None:
        self.token, self.secret = jointokens.issue("fleet", by="tests", now=datetime.now(UTC))
        self.node = make_node(join_token=self.token, last_heartbeat=LONG_AGO)
        self.asked_django = 0
        self.door = HeartbeatDoor(self._django)
        self._behind = get_asgi_application()

    async def _django(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked_django += 1
        await self._behind(scope, receive, send)

    async def beat(
        self, body: bytes = b"{}", *, secret: str = "", node_id: str = ""
    ) -> tuple[int, Any]:
        token = f"Bearer {secret or self.secret}".encode()
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/api/node/{node_id or self.node.pk}/heartbeat",
            "query_string": b"",
            "headers": [(b"host", b"testserver"), (b"authorization", token)],
        }
        said: list[Any] = []
        spoken = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            # After its words a caller stays on the line, silent.
            return next(spoken, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)

        assert self.door.takes(scope)
        await self.door.answer(scope, receive, send)
        words = b"".join(message.get("body", b"") for message in said)
        return said[0]["status"], json.loads(words)

    def row(self) -> BackendNode:
        return BackendNode.objects.get(pk=self.node.pk)


def run(session: Session) -> Caller:
    caller = Caller()
    asyncio.run(session(caller))
    return caller


def test_a_good_pair_never_troubles_django() -> None:
    async def session(caller: Caller) -> None:
        for _ in range(5):
            assert await caller.beat() == (200, {"message": "heartbeat received"})

    caller = run(session)
    assert caller.asked_django == 0


def test_many_strange_pairs_at_once_are_looked_up_together() -> None:
    nodes = [make_node(f"gpu-{number}") for number in range(2, 100)]

    async def session(caller: Caller) -> None:
        await asyncio.to_thread(_adopt, nodes, caller.token)
        answers = await asyncio.gather(*(caller.beat(node_id=str(node.pk)) for node in nodes))
        assert {status for status, _ in answers} == {200}
        await caller.door.flush()

    assert run(session).asked_django == 0
    assert not BackendNode.objects.filter(
        last_heartbeat=LONG_AGO, name__startswith="gpu-9"
    ).exists()


def test_beats_at_the_door_are_stored_together_and_the_last_word_counts() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        for free in (5, 9, 7):
            await caller.beat(json.dumps({"available_ram": free}).encode())
        await caller.door.flush()

    caller = run(session)
    assert caller.row().available_ram == 7
    assert datetime.now(UTC) - caller.row().last_heartbeat < timedelta(seconds=20)


def test_a_stranger_never_gets_known_however_often_it_knocks() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        for _ in range(3):
            status, body = await caller.beat(secret="jt_wrong")
            assert status == 401
            assert isinstance(body["error"], str)

    assert run(session).asked_django == 3


def test_an_unknown_id_is_told_to_register_again() -> None:
    async def session(caller: Caller) -> None:
        status, body = await caller.beat(node_id="00000000-0000-4000-8000-000000000000")
        assert status == 404
        assert body["error"]["type"] == "node_error"

    run(session)


def test_a_token_that_is_used_at_the_door_is_known_to_be_in_use() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        await caller.door.check()

    caller = run(session)
    caller.token.refresh_from_db()
    assert caller.token.last_used_at is not None


def test_a_node_that_moved_to_another_token_no_longer_answers_to_the_first() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        await asyncio.to_thread(_move, caller.node)
        await caller.door.check()
        assert (await caller.beat())[0] == 403

    run(session)


def test_a_revoked_token_is_refused_after_the_next_check() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        await asyncio.to_thread(_revoke, caller.token)
        await caller.door.check()
        assert (await caller.beat())[0] == 401

    run(session)


def test_a_retired_node_is_told_so_after_the_next_check() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        await asyncio.to_thread(_retire, caller.node)
        await caller.door.check()
        assert (await caller.beat())[0] == 410

    run(session)


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[1]", b"\xff", b"[" * 9000, b"x" * 20_000, b'{"total_vram": -1}']
)
def test_a_beat_counts_whatever_its_body_says(body: bytes) -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        assert (await caller.beat(body))[0] == 200
        await caller.door.flush()

    assert run(session).row().last_heartbeat > LONG_AGO


def test_while_the_database_fails_beats_wait_and_readiness_says_so() -> None:
    async def session(caller: Caller) -> None:
        await caller.beat()
        await caller.beat(b'{"available_ram": 11}')
        await asyncio.to_thread(_rename, "nodes_backendnode", "nodes_away")
        try:
            await caller.door.flush()
            assert STORING.failing_for() > 0
            await caller.beat(b'{"available_disk": 3}')
        finally:
            await asyncio.to_thread(_rename, "nodes_away", "nodes_backendnode")
        await caller.door.flush()
        assert STORING.failing_for() == 0

    row = run(session).row()
    assert (row.available_ram, row.available_disk) == (11, 3)


def _adopt(nodes: list[BackendNode], token: JoinToken) -> None:
    rows = BackendNode.objects.filter(pk__in=[node.pk for node in nodes])
    rows.update(join_token=token, last_heartbeat=LONG_AGO)
    connection.close()


def _revoke(token: JoinToken) -> None:
    jointokens.revoke(token, by="tests", now=datetime.now(UTC))
    connection.close()


def _move(node: BackendNode) -> None:
    token, _ = jointokens.issue("another", by="tests", now=datetime.now(UTC))
    retirement.release_token(node, by="tests", now=datetime.now(UTC))
    registration.register(make_request(node.name), token=token, now=datetime.now(UTC))
    connection.close()


def _retire(node: BackendNode) -> None:
    retirement.retire(node, by="tests", reason="", now=datetime.now(UTC))
    connection.close()


def _rename(old: str, new: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")
    connection.close()
