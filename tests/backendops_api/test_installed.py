import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from backendops.api import installed
from backendops.models import NodeBackend, NodeInventory, PendingBackendOp
from backendops.states import OpState
from nodes.models import BackendNode
from nodes.states import NodeType
from nodes.wire import subjects
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node, make_pending
from tests.scripted import ScriptedWorker
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)
LONG_AGO = NOW - timedelta(days=3650)  # the API reads the real clock
TOLD = b'{"backends":[{"name":"llama-cpp","is_system":false,"is_meta":false,"version":"1"}]}'


def at(node: BackendNode, verb: str = "") -> str:
    return f"/api/nodes/{node.pk}/backends" + (f"/{verb}" if verb else "")


def known(node: BackendNode, *names: str) -> None:
    NodeInventory.objects.create(node=node, observed_at=LONG_AGO)
    for name in names:
        NodeBackend.objects.create(
            node=node, name=name, digest="sha256:0", first_seen_at=NOW, observed_at=NOW
        )


def test_row_61_what_a_node_has_is_read_from_rows_and_the_node_is_not_asked(
    root: Caller,
) -> None:
    node = make_node()
    known(node, "whisper", "llama-cpp")
    with ScriptedWorker(node_id=node.pk) as worker:
        worker.listens(subjects.LIST_BACKENDS)
        elements = read(root.get(at(node)))
        assert worker.heard == []
    assert elements == [
        {"name": name, "is_system": False, "is_meta": False, "digest": "sha256:0"}
        for name in ("llama-cpp", "whisper")
    ]


def test_a_node_that_never_told_is_asked_once(root: Caller) -> None:
    node = make_node()
    with ScriptedWorker(node_id=node.pk) as worker:
        worker.answers(subjects.LIST_BACKENDS, TOLD)
        for _ in range(2):
            assert [row["version"] for row in read(root.get(at(node)))] == ["1"]
        assert len(worker.heard) == 1


def test_a_refresh_asks_now(root: Caller) -> None:
    node = make_node()
    known(node, "gone-meanwhile")
    with ScriptedWorker(node_id=node.pk) as worker:
        worker.answers(subjects.LIST_BACKENDS, TOLD)
        told = read(root.get(at(node) + "?refresh=1"))
    assert [row["name"] for row in told] == ["llama-cpp"]


def test_a_node_with_nothing_and_an_agent_have_an_empty_list(root: Caller) -> None:
    empty = make_node("empty")
    agent = make_node("agent", node_type=NodeType.AGENT, address="")
    with ScriptedWorker(node_id=empty.pk) as worker:
        worker.answers(subjects.LIST_BACKENDS, b'{"backends":null}')
        assert read(root.get(at(empty))) == []
    assert read(root.get(at(agent))) == []


def test_a_node_that_does_not_tell_is_an_error_in_words(
    root: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, hung, broken = make_node("away"), make_node("hung"), make_node("broken")
    monkeypatch.setattr(installed, "ASK_WITHIN", timedelta(seconds=3))
    with ScriptedWorker(node_id=hung.pk) as one, ScriptedWorker(node_id=broken.pk) as two:
        one.listens(subjects.LIST_BACKENDS)
        two.answers(subjects.LIST_BACKENDS, b'{"error":"disk is gone"}')
        replies = {node.name: root.get(at(node)) for node in (away, hung, broken)}
    assert {name: reply.status_code for name, reply in replies.items()} == {
        "away": 503,
        "hung": 504,
        "broken": 502,
    }
    assert "disk is gone" in read(replies["broken"])["error"]["message"]
    assert root.get(at(make_pending("new"))).status_code == 409


@pytest.fixture
def patient(settings: Settings) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, answer_within=timedelta(minutes=1))


def meanwhile(**changes: Any) -> threading.Thread:
    """Another process that ends the op as soon as it is there."""

    def work() -> None:
        until(PendingBackendOp.objects.exists)
        PendingBackendOp.objects.update(**changes)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_delete_that_is_over_at_once_is_answered_as_localai_does(
    root: Caller, patient: None, queued: list[Any]
) -> None:
    node = make_node()
    other = meanwhile(state=OpState.SUCCEEDED, finished_at=NOW)
    reply = root.post(at(node, "delete"), {"backend": "x"})
    other.join()
    assert (reply.status_code, read(reply)) == (200, {"message": "backend deleted"})


def test_a_delete_that_the_node_refuses_says_why(
    root: Caller, patient: None, queued: list[Any]
) -> None:
    node = make_node()
    other = meanwhile(state=OpState.FAILED, last_error="file is busy")
    reply = root.post(at(node, "delete"), {"backend": "x"})
    other.join()
    assert (reply.status_code, read(reply)["detail"]) == (502, "file is busy")


def test_a_delete_that_takes_longer_is_a_job(root: Caller, queued: list[Any]) -> None:
    reply = root.post(at(make_node(), "delete"), {"backend": "x"})
    assert reply.status_code == 202
    assert read(root.get(read(reply)["statusUrl"]))["deletion"] is True


def test_nobody_waits_for_a_node_that_takes_no_orders_now(
    root: Caller, patient: None, queued: list[Any]
) -> None:
    node = make_node(liveness="offline")
    reply = root.post(at(node, "delete"), {"backend": "x"})
    assert reply.status_code == 202  # a wait of ten seconds would show in the test's duration


def test_a_delete_from_every_node_waits_for_all_of_them(
    root: Caller, patient: None, queued: list[Any]
) -> None:
    for name in ("a", "b"):
        known(make_node(name), "x")
    other = meanwhile(state=OpState.SUCCEEDED, finished_at=NOW)
    reply = root.post("/api/backends/system/delete/x")
    other.join()
    told = {"success": True, "message": "Backend deleted successfully"}
    assert (reply.status_code, read(reply)) == (200, told)


def test_a_delete_from_every_node_names_the_one_that_refused(
    root: Caller, patient: None, queued: list[Any]
) -> None:
    known(make_node("a"), "x")
    other = meanwhile(state=OpState.FAILED, last_error="file is busy")
    reply = root.post("/api/backends/system/delete/x")
    other.join()
    assert (reply.status_code, read(reply)["error"]) == (502, "a: file is busy")
