from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from backendops.presenting import strip, words
from backendops.services import rollups
from backendops.states import OpState, Verb
from nodes.states import Liveness
from tests.factories import NOW, make_node, make_op, make_operation

LIVE = reverse("admin:operations_live")
PAGES = ("index", "nodes_backendnode_changelist", "nodes_clusterevent_changelist")


def make(state: OpState, backend: str = "llama-cpp", verb: Verb = Verb.INSTALL, **op: Any) -> Any:
    node = op.pop("node", None) or make_node(f"node-{backend}")
    return make_operation(
        make_op(node, backend, state=state, verb=verb, **op), backend=backend, verb=verb
    )


def shown() -> strip.Strip:
    return strip.strip(rollups.live(now=NOW))


@pytest.mark.django_db
def test_nothing_is_said_when_nothing_goes_on() -> None:
    make(OpState.SUCCEEDED)
    assert shown() == strip.Strip()


@pytest.mark.django_db
def test_the_first_failure_comes_before_everything_that_runs() -> None:
    make(OpState.RUNNING, "a", percentage=3.0)
    make(OpState.DEAD, "b", last_error="disk full")
    line = shown()
    assert (line.headline, line.detail) == ("Install of b failed", "node-b: disk full")
    assert (line.more, line.failures) == (1, 1)


@pytest.mark.django_db
def test_without_a_failure_the_least_advanced_is_shown() -> None:
    make(OpState.RUNNING, "a", percentage=80.0)
    make(OpState.RUNNING, "b", percentage=10.0)
    make(OpState.QUEUED, "c")
    assert shown().headline == "Installing b"


@pytest.mark.django_db
@pytest.mark.parametrize("state", [OpState.FAILED, OpState.DEAD])
def test_row_75_a_failed_operation_never_drives_a_busy_indicator(state: OpState) -> None:
    make(state)
    line = shown()
    assert (line.spins, line.bar, line.tone) == (False, None, "bad")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (Verb.DELETE, "Deleting llama-cpp"),
        (Verb.UPGRADE, "Upgrading llama-cpp"),
        (Verb.REINSTALL, "Reinstalling llama-cpp"),
        (Verb.STOP, "Stopping llama-cpp"),
    ],
)
def test_row_76_each_verb_is_called_by_its_name(verb: Verb, said: str) -> None:
    make(OpState.RUNNING, verb=verb)
    assert shown().headline == said


@pytest.mark.django_db
def test_row_76_what_was_cancelled_is_not_announced_as_done() -> None:
    make(OpState.CANCELLED)
    assert shown() == strip.Strip()
    operation = make(OpState.CANCELLED, "b")
    assert "cancelled" in words.headline(rollups.rollups([operation], now=NOW)[operation.pk])


@pytest.mark.django_db
def test_what_is_not_confirmed_is_amber() -> None:
    make(OpState.UNCONFIRMED)
    assert (shown().tone, shown().spins) == ("warn", False)


@pytest.mark.parametrize("page", PAGES)
def test_row_30_a_failure_is_on_every_page_until_it_is_dismissed(root: Client, page: str) -> None:
    operation = make(OpState.DEAD, last_error="disk full")
    for _ in range(3):
        text = root.get(reverse(f"admin:{page}")).content.decode()
        assert "Install of llama-cpp failed" in text
        assert "node-llama-cpp: disk full" in text
    dismiss = reverse("admin:backendops_operation_dismiss", args=[operation.pk])
    root.post(dismiss, {"_form_submitted": "true"})
    assert "failed" not in root.get(reverse(f"admin:{page}")).context["strip"].headline
    operation.refresh_from_db()
    assert operation.acknowledged_by == "root"


def test_row_34_dismissing_is_about_one_job_and_not_about_a_name(root: Client) -> None:
    node = make_node()
    first = make(OpState.DEAD, node=node)
    make(OpState.DEAD, node=node)
    url = reverse("admin:backendops_operation_dismiss", args=[first.pk])
    root.post(url, {"_form_submitted": "true"})
    assert root.get(LIVE).headers["X-Next"] == str(strip.IDLE)
    assert shown().failures == 1


def test_row_33_what_runs_is_not_dismissed(root: Client) -> None:
    operation = make(OpState.RUNNING)
    url = reverse("admin:backendops_operation_dismiss", args=[operation.pk])
    root.post(url, {"_form_submitted": "true"})
    text = root.get(reverse("admin:index")).content.decode()
    assert "is still under way; dismissing would hide it." in text


@pytest.mark.parametrize(
    ("state", "pace"),
    [
        (OpState.RUNNING, strip.BUSY),
        (OpState.QUEUED, strip.BUSY),
        (OpState.CANCELLING, strip.BUSY),
        (OpState.UNCONFIRMED, strip.IDLE),
        (OpState.FAILED, strip.IDLE),
        (OpState.SUCCEEDED, strip.NEVER),
        (OpState.CANCELLED, strip.NEVER),
    ],
)
def test_row_79_a_page_asks_as_often_as_something_can_change(
    root: Client, state: OpState, pace: int
) -> None:
    make(state)
    assert root.get(LIVE).headers["X-Next"] == str(pace)
    assert f'data-pace="{pace}"' in root.get(reverse("admin:index")).content.decode()


def test_waiting_for_a_node_that_is_away_is_no_reason_to_hurry(root: Client) -> None:
    make(OpState.QUEUED, node=make_node(liveness=Liveness.OFFLINE))
    assert root.get(LIVE).headers["X-Next"] == str(strip.IDLE)


@pytest.mark.django_db
def test_it_costs_one_query(django_assert_num_queries: Any) -> None:
    for number in range(5):
        make(OpState.RUNNING, f"b-{number}")
    with django_assert_num_queries(1):
        assert shown().more == 4


def test_who_may_not_see_operations_is_told_nothing_and_costs_nothing(
    client: Client, db: None, django_assert_num_queries: Any
) -> None:
    make(OpState.DEAD)
    user = User.objects.create_user("nobody", is_staff=True)
    client.force_login(user)
    page = client.get(reverse("admin:index"))
    assert page.context["strip"] == strip.Strip()
    assert "operations-live" not in page.content.decode()
    assert client.get(LIVE).status_code == 403


def test_the_sidebar_counts_failures_and_dead_letters(root: Client) -> None:
    make(OpState.DEAD, "a")
    make(OpState.RUNNING, "b")
    groups = root.get(reverse("admin:index")).context["sidebar_navigation"]
    badges = {item["title"]: item.get("badge") for group in groups for item in group["items"]}
    assert (badges["Operations"], badges["Dead letters"]) == (1, 1)
