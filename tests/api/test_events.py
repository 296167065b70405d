from datetime import timedelta

import pytest

from nodes.models import ClusterEvent
from nodes.services import events
from nodes.states import Severity
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node


@pytest.fixture
def history(db: None) -> None:
    node = make_node()
    tell = events.record
    tell("node.registered", actor="worker gpu-1", now=NOW, node=node)
    tell("node.approved", actor="root", now=NOW + timedelta(hours=1), node=node)
    tell("join.refused", actor="x", now=NOW, subject="thief", severity=Severity.ATTENTION)
    tell("worker.refused", actor="x", now=NOW, subject="ghost", severity=Severity.ATTENTION)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("", ["worker.refused", "join.refused", "node.approved", "node.registered"]),
        ("?node=gpu-1", ["node.approved", "node.registered"]),
        ("?node=nobody", []),
        ("?kind=node.", ["node.approved", "node.registered"]),
        ("?kind=node.approved", ["node.approved"]),
        ("?kind=%25", []),
        ("?severity=attention", ["worker.refused", "join.refused"]),
        ("?severity=attention&unacknowledged=true&node=thief", ["join.refused"]),
        ("?unacknowledged=false", []),
        ("?since=2030-01-01T13:00:00%2B00:00", ["node.approved"]),
        ("?since=2030-01-01T13:00:00+00:00", ["node.approved"]),
        ("?since=2030-01-01T12:30:00Z", ["node.approved"]),
        ("?page_size=1&page=2", ["join.refused"]),
    ],
)
def test_the_history_is_told_newest_first(root: Caller, query: str, kinds: list[str]) -> None:
    told = read(root.get(f"/api/events{query}"))
    assert [event["kind"] for event in told] == kinds


@pytest.mark.parametrize(
    "query",
    [
        "severity=dire",
        "severity=%00",
        "unacknowledged=perhaps",
        "kind=%00",
        "node=%00",
        "since=yesterday",
        "since=2030-01-01",
        "since=2030-01-01T12:00:00",
        "since=2030-99-99T12:00:00Z",
        "since=%00",
        "since=0001-01-01T00:00:00%2B23:59",
        "since=9999-12-31T23:59:59-23:59",
        "page=0",
        "page_size=x",
    ],
)
def test_a_question_that_means_nothing_is_refused(root: Caller, query: str) -> None:
    reply = root.get(f"/api/events?{query}")
    assert (reply.status_code, read(reply)["code"]) == (400, "invalid_input")


@pytest.mark.parametrize("since", ["2030-01-01T12:00:00-23:59", "0001-01-01T00:00:00Z"])
def test_a_moment_far_from_here_is_a_moment(root: Caller, since: str) -> None:
    assert root.get(f"/api/events?since={since}").status_code == 200


def test_fifty_at_a_time_unless_asked_otherwise(root: Caller) -> None:
    for _ in range(52):
        events.record("node.approved", actor="root", now=NOW)
    reply = root.get("/api/events")
    assert (len(read(reply)), reply.headers["X-Total-Count"]) == (50, "52")
    assert len(read(root.get("/api/events?page=2"))) == 2


@pytest.mark.usefixtures("history")
def test_who_acknowledges_first_is_remembered(root: Caller) -> None:
    event = ClusterEvent.objects.get(kind="join.refused")
    for _ in range(2):
        reply = root.post(f"/api/events/{event.pk}/acknowledge")
        assert (reply.status_code, read(reply)) == (200, {"message": "event acknowledged"})
    event.refresh_from_db()
    assert event.acknowledged_by == "root"
    assert read(root.get("/api/cluster"))["attention"] == 1


def test_an_event_carries_the_id_of_the_request_that_caused_it(root: Caller) -> None:
    node = make_node()
    root.post(f"/api/nodes/{node.pk}/cordon", **{"X-Request-ID": "click-7"})
    (event,) = read(root.get("/api/events"))
    assert (event["request_id"], event["actor"], event["subject"]) == ("click-7", "root", "gpu-1")
