from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.models import Operation, PendingBackendOp
from backendops.states import OpState, Verb
from nodes.states import Liveness
from tests.backendops_admin.rows import fan_out, many_nodes
from tests.factories import NOW, make_node, make_op, make_operation

LIVE = reverse("admin:operations_live")
SUBMITTED = {"_form_submitted": "true"}


def page_of(operation: Operation) -> str:
    return reverse("admin:backendops_operation_change", args=[operation.pk])


def act(browser: Client, verb: str, row: Operation | PendingBackendOp, **filled: str) -> None:
    url = reverse(f"admin:backendops_{row._meta.model_name}_{verb}", args=[row.pk])
    assert browser.post(url, {**SUBMITTED, **filled}).status_code == 200


def share_of(page: Any, name: str) -> Any:
    return next(share for share, _ in page.context["rows"] if share.op.node.name == name)


def offered(page: Any) -> list[str]:
    return [button.verb for button in page.context["buttons"]]


@pytest.mark.parametrize("nodes", [50, 1000])
def test_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], nodes: int
) -> None:
    queries(page_of(fan_out(many_nodes(nodes), state=OpState.RUNNING)), 14)


def test_row_25_nodes_are_sorted_by_name_and_paged(root: Client) -> None:
    operation = fan_out(list(reversed(many_nodes(60))), state=OpState.RUNNING)
    first, second = (root.get(page_of(operation), {"p": number}) for number in (1, 2))
    names = [share.op.node.name for page in (first, second) for share, _ in page.context["rows"]]
    assert names == sorted(names)
    assert len(names) == 60


def test_row_26_only_the_node_that_failed_is_red(root: Client) -> None:
    good = make_op(make_node("a"), state=OpState.SUCCEEDED)
    bad = make_op(make_node("b"), state=OpState.DEAD, last_error="disk full", attempts=10)
    page = root.get(page_of(make_operation(good, bad)))
    assert page.context["line"].state == "partial"
    assert (share_of(page, "a").error, share_of(page, "b").error) == ("", "disk full")
    assert page.context["line"].roll.first_error == "b: disk full"


def test_row_21_a_silent_worker_is_said_to_be_silent(root: Client) -> None:
    page = root.get(page_of(make_operation(make_op(make_node("a"), state=OpState.RUNNING))))
    assert share_of(page, "a").doing == "no progress reported"


def test_row_84_the_phase_is_shown_with_the_file(root: Client) -> None:
    op = make_op(
        make_node("a"),
        state=OpState.RUNNING,
        phase="extracting",
        file_name="x.tar",
        percentage=100.0,
        progress_at=NOW,
    )
    share = share_of(root.get(page_of(make_operation(op))), "a")
    assert (share.doing, share.bar.percent) == ("extracting x.tar", 100)


def test_rate_and_eta_are_told_and_never_guessed(root: Client) -> None:
    known = make_op(
        make_node("a"),
        state=OpState.RUNNING,
        current_bytes=2**20,
        total_bytes=11 * 2**20,
        rate=float(2**20),
        progress_at=NOW,
    )
    unknown = make_op(make_node("b"), state=OpState.RUNNING, current_bytes=2**20, progress_at=NOW)
    page = root.get(page_of(make_operation(known, unknown)))
    assert share_of(page, "a").amounts == "1 MB of 11 MB · 1 MB/s · 10 s left"
    assert share_of(page, "b").amounts == "1 MB"
    assert page.context["line"].roll.eta is None


def test_row_38_unconfirmed_is_amber_with_its_next_check_and_a_button(root: Client) -> None:
    due = NOW + timedelta(minutes=5)
    op = make_op(make_node("a"), state=OpState.UNCONFIRMED, due_at=due, percentage=70.0)
    share = share_of(root.get(page_of(make_operation(op))), "a")
    assert share.bar.tone == "warn"
    assert share.notes[-1] == "Next check at 12:05:00 UTC."
    assert [button.verb for button in share.buttons] == ["check_now", "cancel"]


def test_row_38_check_now_asks_the_node_and_sends_nothing_again(
    root: Client, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    op = make_op(make_node("a"), state=OpState.UNCONFIRMED, due_at=NOW)
    with django_capture_on_commit_callbacks(execute=True):
        act(root, "check_now", op)
    assert queued == [("backendops.look_at_node", str(op.node_id))]


def test_a_failed_share_says_when_it_is_tried_again_and_can_be_tried_now(root: Client) -> None:
    op = make_op(
        make_node("a"),
        state=OpState.FAILED,
        attempts=2,
        last_error="timeout",
        due_at=NOW + timedelta(minutes=1),
    )
    operation = make_operation(op)
    share = share_of(root.get(page_of(operation)), "a")
    assert share.notes == ["Tried 2 times.", "Next try at 12:01:00 UTC."]
    act(root, "try_now", op)
    op.refresh_from_db()
    assert (op.state, op.attempts) == (OpState.QUEUED, 0)


def test_row_15_who_waits_for_a_node_says_for_which_and_since_when(root: Client) -> None:
    node = make_node("gpu-7", liveness=Liveness.OFFLINE)
    op = make_op(node)
    notes = share_of(root.get(page_of(make_operation(op))), "gpu-7").notes
    assert notes[0].startswith("Waiting for gpu-7, offline ")


def test_row_51_cancelling_says_that_the_node_may_finish(root: Client) -> None:
    operation = make_operation(make_op(make_node("a"), state=OpState.RUNNING))
    act(root, "cancel", operation, reason="wrong rack")
    page = root.get(page_of(operation))
    assert page.context["line"].state == "cancelling"
    assert "its result will be recorded" in page.content.decode()
    assert "wrong rack" in share_of(page, "a").notes[0]
    assert offered(page) == []


def test_row_52_a_delete_that_has_begun_has_no_cancel_and_a_waiting_one_has(root: Client) -> None:
    node = make_node()
    begun = make_operation(
        make_op(node, "a", verb=Verb.DELETE, state=OpState.RUNNING), verb=Verb.DELETE, backend="a"
    )
    waiting = make_operation(make_op(node, "b", verb=Verb.DELETE), verb=Verb.DELETE, backend="b")
    assert offered(root.get(page_of(begun))) == []
    assert offered(root.get(page_of(waiting))) == ["cancel"]
    act(root, "cancel", begun)
    assert "is deleting a; that is not stopped halfway" in root.get(page_of(begun)).content.decode()


def test_row_27_retry_asks_exactly_the_nodes_that_failed(root: Client) -> None:
    good = make_op(make_node("a"), state=OpState.SUCCEEDED)
    bad = make_op(make_node("b"), state=OpState.DEAD, last_error="disk full")
    operation = make_operation(good, bad)
    assert offered(root.get(page_of(operation))) == ["retry", "dismiss"]
    act(root, "retry", operation)
    [retry] = operation.retries.all()
    assert [op.node.name for op in retry.ops.all()] == ["b"]
    assert page_of(retry) in root.get(page_of(operation)).content.decode()
    assert page_of(operation) in root.get(page_of(retry)).content.decode()


def test_one_node_of_a_fan_out_is_cancelled_alone(root: Client) -> None:
    one, other = make_op(make_node("a")), make_op(make_node("b"))
    make_operation(one, other)
    act(root, "cancel", one, reason="fans")
    states = PendingBackendOp.objects.order_by("id").values_list("state", flat=True)
    assert list(states) == [OpState.CANCELLED, OpState.QUEUED]


def test_who_was_left_out_is_listed_with_why(root: Client) -> None:
    skipped = [{"node": "x", "name": "new", "why": "new is not approved yet."}]
    operation = make_operation(make_op(make_node()), skipped=skipped)
    assert "new is not approved yet." in root.get(page_of(operation)).content.decode()


def test_row_74_another_session_sees_the_same(root: Client, viewer: Client) -> None:
    operation = make_operation(make_op(make_node("a"), state=OpState.RUNNING, percentage=30.0))
    for browser in (root, viewer):
        assert share_of(browser.get(page_of(operation)), "a").bar.percent == 30


def test_a_refresh_sends_the_head_its_buttons_and_what_changed(root: Client) -> None:
    old = make_op(make_node("a"), state=OpState.SUCCEEDED, changed_at=NOW - timedelta(hours=1))
    new = make_op(make_node("b"), state=OpState.RUNNING)
    operation = make_operation(old, new)
    asked = {
        "operation": str(operation.pk),
        "ops": f"{old.pk},{new.pk}",
        "seen": NOW.isoformat(),
    }
    text = root.get(LIVE, asked).content.decode()
    assert 'id="operation-head"' in text
    assert 'id="operation-verbs"' in text
    assert f'id="s-{new.pk}-progress"' in text
    assert f'id="s-{old.pk}-progress"' not in text


@pytest.mark.parametrize("state", OpState)
def test_every_state_has_a_page(root: Client, state: OpState) -> None:
    operation = make_operation(make_op(make_node("a"), state=state))
    page = root.get(page_of(operation))
    assert f"cm-is-{state}" in page.content.decode()


def test_an_unknown_operation_is_not_found(root: Client) -> None:
    url = reverse("admin:backendops_operation_change", args=["0" * 32])
    assert root.get(url).status_code in (302, 404)


@pytest.mark.parametrize(
    ("verb", "told"), [(Verb.INSTALL, "each worker's own"), (Verb.STOP, None), (Verb.DELETE, None)]
)
def test_galleries_are_told_only_where_something_is_fetched(
    root: Client, verb: Verb, told: str | None
) -> None:
    operation = make_operation(make_op(make_node(), verb=verb), verb=verb)
    assert dict(root.get(page_of(operation)).context["facts"]).get("Galleries") == told
