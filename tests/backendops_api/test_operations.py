from datetime import timedelta
from typing import Any

import pytest

from backendops.models import Operation, PendingBackendOp
from backendops.states import OpState, Verb
from nodes.models import ClusterEvent
from nodes.states import Liveness
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db
DONE: dict[str, Any] = {"state": OpState.SUCCEEDED, "finished_at": NOW}


def live(root: Caller) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = read(root.get("/api/operations"))["operations"]
    return operations


def at(operation: Operation, verb: str = "") -> str:
    return f"/api/operations/{operation.pk}" + (f"/{verb}" if verb else "")


def test_row_13_a_queued_operation_is_shown_as_queued_and_can_be_cancelled(root: Caller) -> None:
    make_operation(make_op(make_node()))
    [item] = live(root)
    assert (item["isQueued"], item["state"], item["taskType"]) == (True, "queued", "Waiting")
    assert (item["progress"], item["cancellable"]) == (0, True)
    assert item["nodes"][0]["status"] == "queued"


def test_row_14_a_third_op_on_a_node_knows_its_place_and_what_is_ahead(root: Caller) -> None:
    node = make_node()
    make_operation(make_op(node, "one", state=OpState.RUNNING), backend="one")
    make_operation(make_op(node, "two"), backend="two")
    third = make_operation(make_op(node, "three"), backend="three")
    [row] = read(root.get(at(third)))["nodes"]
    assert (row["position"], row["behind"]) == (3, "install of one, install of two")


def test_row_21_a_silent_worker_has_no_made_up_figures(root: Caller) -> None:
    make_operation(make_op(make_node(), state=OpState.RUNNING))
    [item] = live(root)
    assert (item["progress"], item["eta"]) == (0, None)
    assert "totalBytes" not in item


def test_row_24_the_bar_is_weighted_by_bytes_and_comes_with_an_eta(root: Caller) -> None:
    big = make_op(
        make_node("big"),
        state=OpState.RUNNING,
        percentage=50,
        current_bytes=150,
        total_bytes=300,
        rate=10.0,
    )
    small = make_op(make_node("small"), total_bytes=100, **DONE)
    make_operation(big, small)
    [item] = live(root)
    assert (item["progress"], item["totalBytes"]) == (62, 400)
    assert item["nodes"][0]["etaSeconds"] == 15
    assert item["eta"] is not None


def test_row_25_nodes_come_in_the_order_of_their_names(root: Caller) -> None:
    operation = make_operation(*(make_op(make_node(name)) for name in "cab"))
    for _ in range(2):
        assert [row["node_name"] for row in read(root.get(at(operation)))["nodes"]] == list("abc")
        assert [row["node_name"] for row in read(root.get(at(operation, "ops")))] == list("abc")


def test_row_26_a_partial_failure_names_the_node_that_failed(root: Caller) -> None:
    good = make_op(make_node("good"), **DONE)
    bad = make_op(make_node("bad"), state=OpState.DEAD, finished_at=NOW, last_error="disk full")
    make_operation(good, bad)
    [item] = live(root)
    assert (item["state"], item["error"]) == ("partial", "bad: disk full")
    assert [row["status"] for row in item["nodes"]] == ["error", "success"]
    assert [row["error"] for row in item["nodes"]] == ["disk full", ""]


def test_row_27_a_retry_asks_only_the_nodes_that_failed(root: Caller) -> None:
    good = make_op(make_node("good"), **DONE)
    bad = make_op(make_node("bad"), state=OpState.DEAD, finished_at=NOW)
    first = make_operation(good, bad)
    reply = root.post(at(first, "retry"))
    again = Operation.objects.get(pk=read(reply)["jobID"])
    assert (reply.status_code, again.retry_of) == (202, first)
    assert [op.node.name for op in again.ops.all()] == ["bad"]
    assert read(root.get(at(again)))["retryOf"] == str(first.pk)


@pytest.mark.parametrize("verb", [Verb.UPGRADE, Verb.DELETE, Verb.REINSTALL])
def test_rows_28_and_29_a_retry_keeps_verb_and_parameters(root: Caller, verb: Verb) -> None:
    with_uri = verb == Verb.REINSTALL
    source = {"uri": "https://x.org/x.tgz", "name": "x", "alias": "y"} if with_uri else {}
    bad = make_op(make_node(), state=OpState.DEAD, finished_at=NOW, verb=verb, **source)
    first = make_operation(bad, verb=verb, **source)
    again = Operation.objects.get(pk=read(root.post(at(first, "retry")))["jobID"])
    assert (again.verb, again.uri, again.alias) == (verb, first.uri, first.alias)


def test_row_30_a_failure_stays_however_often_it_is_read(root: Caller) -> None:
    make_operation(make_op(make_node(), state=OpState.DEAD, finished_at=NOW, last_error="x"))
    for _ in range(10):
        assert len(live(root)) == 1


def test_row_32_dismissing_moves_a_failure_to_the_record_with_its_error(root: Caller) -> None:
    failed = make_operation(
        make_op(make_node(), state=OpState.DEAD, finished_at=NOW, last_error="disk full")
    )
    assert root.post(at(failed, "dismiss")).status_code == 200
    assert live(root) == []
    [record] = read(root.get("/api/operations/history"))["operations"]
    assert (record["outcome"], record["error"]) == ("failed", "gpu-1: disk full")
    assert (record["acknowledgedBy"], record["jobID"]) == ("root", str(failed.pk))
    assert ClusterEvent.objects.get().kind == "operation.acknowledged"


def test_row_33_what_is_running_cannot_be_dismissed(root: Caller) -> None:
    running = make_operation(make_op(make_node(), state=OpState.RUNNING))
    reply = root.post(at(running, "dismiss"))
    assert (reply.status_code, len(live(root))) == (409, 1)


def test_row_34_dismissing_is_by_job_and_not_by_name(root: Caller) -> None:
    ops = [make_op(make_node(name), state=OpState.DEAD, finished_at=NOW) for name in ("one", "two")]
    first, second = (make_operation(op) for op in ops)
    root.post(at(first, "dismiss"))
    assert [item["jobID"] for item in live(root)] == [str(second.pk)]


def test_row_35_what_is_done_leaves_the_list_without_being_asked_about(root: Caller) -> None:
    op = make_op(make_node(), state=OpState.RUNNING)
    operation = make_operation(op)
    assert len(live(root)) == 1
    PendingBackendOp.objects.update(**DONE)
    assert live(root) == []
    job = read(root.get(f"/api/backends/job/{operation.pk}"))
    assert (job["completed"], job["processed"], job["progress"]) == (True, True, 100)
    assert job["message"] == "completed"


def test_row_38_an_unconfirmed_one_is_listed_with_its_next_check(root: Caller) -> None:
    due = NOW + timedelta(minutes=15)
    operation = make_operation(make_op(make_node(), state=OpState.UNCONFIRMED, due_at=due))
    [item] = live(root)
    assert (item["state"], item["nodes"][0]["status"]) == ("unconfirmed", "running_on_worker")
    assert item["nodes"][0]["nextAt"] == "2030-01-01T12:15:00Z"
    job = read(root.get(f"/api/backends/job/{operation.pk}"))
    assert (job["processed"], "error" in job, "completed" in job) == (False, False, False)


def test_row_43_a_dead_letter_needs_attention_and_can_be_retried(root: Caller) -> None:
    operation = make_operation(make_op(make_node(), state=OpState.DEAD, finished_at=NOW))
    assert live(root)[0]["state"] == "failed"
    assert root.post(at(operation, "retry")).status_code == 202


def test_row_47_a_queued_operation_that_is_cancelled_is_over_at_once(root: Caller) -> None:
    operation = make_operation(make_op(make_node()))
    reply = root.post(at(operation, "cancel"), {"reason": "not today"})
    assert (reply.status_code, read(reply)["count"]) == (200, 1)
    [op] = operation.ops.all()
    assert op.state == OpState.CANCELLED
    assert "not today" in op.note
    job = read(root.get(f"/api/backends/job/{operation.pk}"))
    assert (job["processed"], job["cancelled"], "completed" in job) == (True, True, False)


def test_row_50_cancelling_a_running_one_says_that_the_node_was_asked(root: Caller) -> None:
    operation = make_operation(make_op(make_node(), state=OpState.RUNNING))
    root.post(at(operation, "cancel"))
    [item] = live(root)
    assert (item["state"], item["cancellable"]) == ("cancelling", False)
    assert root.post(at(operation, "cancel")).status_code == 409


def test_row_52_a_delete_can_be_cancelled_until_the_node_is_at_it(root: Caller) -> None:
    queued = make_operation(make_op(make_node("one"), verb=Verb.DELETE), verb=Verb.DELETE)
    running = make_operation(
        make_op(make_node("two"), verb=Verb.DELETE, state=OpState.RUNNING), verb=Verb.DELETE
    )
    assert {item["jobID"]: item["cancellable"] for item in live(root)} == {
        str(queued.pk): True,
        str(running.pk): False,
    }
    assert root.post(at(queued, "cancel")).status_code == 200
    assert root.post(at(running, "cancel")).status_code == 409


def test_row_53_a_pause_is_refused_in_words_and_changes_nothing(root: Caller) -> None:
    operation = make_operation(make_op(make_node(), state=OpState.RUNNING))
    reply = root.post(at(operation, "pause"))
    assert (reply.status_code, read(reply)["code"]) == (409, "cannot_pause")
    assert operation.ops.get().state == OpState.RUNNING


def test_row_75_a_failed_one_drives_no_busy_indicator(root: Caller) -> None:
    make_operation(make_op(make_node(), state=OpState.DEAD, finished_at=NOW))
    assert read(root.get("/api/backends"))["processingBackends"] == {}


def test_row_76_removal_and_cancellation_are_never_told_as_an_install_that_worked(
    root: Caller,
) -> None:
    removal = make_op(make_node("one"), verb=Verb.DELETE, state=OpState.RUNNING)
    cancelled = make_op(make_node("two"), state=OpState.CANCELLED, note="Cancelled by ada.")
    make_operation(removal, verb=Verb.DELETE)
    operation = make_operation(cancelled)
    [item] = live(root)
    assert (item["isDeletion"], item["taskType"], item["verb"]) == (True, "deletion", "delete")
    [row] = read(root.get(at(operation, "ops")))
    assert (row["status"], row["error"], row["state"]) == (
        "error",
        "Cancelled by ada.",
        "cancelled",
    )


def test_what_waits_for_an_offline_node_is_listed_and_stays_so(root: Caller) -> None:
    node = make_node(liveness=Liveness.OFFLINE)
    make_operation(make_op(node, due_at=NOW - timedelta(hours=2)))
    assert live(root)[0]["state"] == "queued"


def test_one_operation_tells_everything_that_is_needed_to_ask_again(root: Caller) -> None:
    skip = {"node": "x", "name": "agent-1", "why": "agent-1 is an agent."}
    operation = make_operation(
        make_op(make_node()),
        galleries=[{"name": "main", "url": "u"}],
        reason="why not",
        skipped=[skip],
    )
    told = read(root.get(at(operation)))
    assert told["fullName"] == "main@llama-cpp"
    assert told["request"]["galleries"] == [{"name": "main", "url": "u"}]
    assert (told["reason"], told["skipped"]) == ("why not", [skip])
    assert told["requestedBy"] == "tests"


def test_nodes_of_an_operation_are_filtered_by_state_and_paged(root: Caller) -> None:
    ops = [make_op(make_node(f"n{number}")) for number in range(3)]
    ops.append(make_op(make_node("done"), **DONE))
    path = at(make_operation(*ops), "ops")
    assert len(read(root.get(f"{path}?state=queued"))) == 3
    page = root.get(f"{path}?page=2&page_size=3")
    assert (len(read(page)), page.headers["X-Total-Count"]) == (1, "4")
    assert root.get(f"{path}?state=nonsense").status_code == 400


@pytest.mark.parametrize("verb", ["cancel", "dismiss", "retry", "pause"])
def test_every_verb_on_an_unknown_job_is_not_found(root: Caller, verb: str) -> None:
    reply = root.post(f"/api/operations/00000000-0000-0000-0000-00000000000a/{verb}")
    assert (reply.status_code, read(reply)["code"]) == (404, "not_found")
