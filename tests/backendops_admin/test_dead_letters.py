from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.models import PendingBackendOp
from backendops.states import OpState
from tests.factories import make_node, make_op, make_operation

LIST = reverse("admin:backendops_pendingbackendop_changelist")


def make_dead(backend: str, error: str = "disk full", **more: Any) -> PendingBackendOp:
    node = more.pop("node", None) or make_node(f"node-{backend}")
    return make_op(
        node, backend, state=OpState.DEAD, last_error=error, attempts=10, due_at=None, **more
    )


def preview(browser: Client, action: str, *ops: PendingBackendOp) -> Any:
    chosen = [str(op.pk) for op in ops]
    return browser.post(LIST, {"action": action, "_selected_action": chosen, "index": 0})


def confirm(browser: Client, order: str, page: Any, **filled: str) -> Any:
    url = reverse("admin:backendops_deadletters", args=[order])
    return browser.post(url, {"ids": page.context["ids"], **filled}, follow=True)


def states() -> set[str]:
    return set(PendingBackendOp.objects.values_list("state", flat=True))


def test_row_43_only_dead_letters_are_listed_and_grouped_by_cause(root: Client) -> None:
    make_dead("a")
    make_dead("b")
    make_dead("c", "404 not found")
    make_op(make_node(), state=OpState.FAILED, last_error="disk full")
    page = root.get(LIST)
    found = [(cause.words, cause.count) for cause in page.context["causes"]]
    assert found == [("disk full", 2), ("404 not found", 1)]
    assert page.context["cl"].result_count == 3
    assert root.get(LIST, {"cause": "404 not found"}).context["cl"].result_count == 1


@pytest.mark.parametrize("cause", ["no such cause", "\x00", "?"])
def test_a_cause_that_there_is_not_shows_nothing_and_breaks_nothing(
    root: Client, cause: str
) -> None:
    make_dead("a")
    assert root.get(LIST, {"cause": cause}).status_code == 200


def test_many_are_put_back_at_once(root: Client) -> None:
    page = preview(root, "redrive_selected", make_dead("a"), make_dead("b"))
    assert states() == {OpState.DEAD}
    assert "Put back into the queue: 2." in confirm(root, "redrive", page).content.decode()
    assert states() == {OpState.QUEUED}


def test_discarding_needs_a_reason_and_keeps_the_record(root: Client) -> None:
    op = make_dead("a")
    page = preview(root, "discard_selected", op)
    again = confirm(root, "discard", page)
    assert "This field is required" in again.content.decode()
    assert states() == {OpState.DEAD}
    confirm(root, "discard", again, reason="the machine is gone")
    op.refresh_from_db()
    assert (op.state, op.note) == (
        OpState.CANCELLED,
        "Discarded by root: the machine is gone",
    )


def test_one_that_cannot_go_back_does_not_keep_the_others(root: Client) -> None:
    stuck, free = make_dead("a"), make_dead("b")
    page = preview(root, "redrive_selected", stuck, free)
    make_op(stuck.node, "a")
    text = confirm(root, "redrive", page).content.decode()
    assert "A newer order for the same backend is outstanding" in text
    assert "Put back into the queue: 1." in text


@pytest.mark.parametrize(("verb", "state"), [("redrive", "queued"), ("discard", "cancelled")])
def test_one_alone_is_redriven_or_discarded(root: Client, verb: str, state: str) -> None:
    op = make_dead("a")
    url = reverse(f"admin:backendops_pendingbackendop_{verb}", args=[op.pk])
    root.post(url, {"_form_submitted": "true", "reason": "why not"})
    op.refresh_from_db()
    assert op.state == state


def test_a_dead_letter_leads_to_its_operation(root: Client) -> None:
    op = make_dead("a")
    operation = make_operation(op, backend="a")
    page = root.get(reverse("admin:backendops_pendingbackendop_change", args=[op.pk]))
    assert page.headers["Location"] == reverse(
        "admin:backendops_operation_change", args=[operation.pk]
    )


def test_none_is_a_plain_sentence(root: Client) -> None:
    assert "No dead letters" in root.get(LIST).content.decode()


def test_an_order_nobody_knows_is_not_found(root: Client) -> None:
    url = reverse("admin:backendops_deadletters", args=["explode"])
    assert root.post(url).status_code == 404
