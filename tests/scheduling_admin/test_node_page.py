from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from nodes.models import BackendNode, NodeModel
from nodes.services import facts
from nodes.states import ReplicaState
from scheduling.states import JobState
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica, make_rule


def page_of(node: BackendNode, tab: str = "overview") -> str:
    return reverse("admin:nodes_backendnode_change", args=[node.pk]) + f"?tab={tab}"


def text(client: Client, url: str) -> str:
    reply = client.get(url)
    assert reply.status_code == 200
    return reply.content.decode()


def loading(node: BackendNode, **changes: Any) -> None:
    values = {
        "state": JobState.STAGING,
        "lease_until": NOW,
        "started_at": NOW,
        "progress_at": NOW + timedelta(seconds=10),
        "current_bytes": GIB,
        "total_bytes": 4 * GIB,
        "percentage": 25,
    }
    make_job(node, **{**values, **changes})


@pytest.fixture
def emptied(db: None) -> BackendNode:
    """A node that an operator has drained a minute ago."""
    return make_node(
        drain_requested_at=datetime.now(UTC),
        drain_requested_by="ada",
        drain_deadline=datetime.now(UTC) + timedelta(minutes=10, seconds=30),
    )


def test_a_drain_tells_what_still_stands_and_until_when(
    viewer: Client, emptied: BackendNode
) -> None:
    make_replica(emptied, in_flight=3)
    shown = text(viewer, page_of(emptied))
    assert "1 replica left, 3 requests in flight." in shown
    assert "What is left in 10 min" in shown
    assert "No new requests; 3 requests in flight." in shown
    assert "Cancel the drain" not in shown


def test_a_replica_that_waits_for_its_replacement_tells_how_far_that_is(
    viewer: Client, emptied: BackendNode
) -> None:
    make_model()
    make_rule(min_replicas=1)
    make_replica(emptied, config_revision="r1")
    assert "None is on its way yet." in text(viewer, page_of(emptied))
    loading(make_node("gpu-2"))
    shown = text(viewer, page_of(emptied))
    assert "Serves until its replacement on gpu-2 is ready: staging." in shown
    assert "25 %" in shown


def test_a_replica_that_nothing_replaces_tells_why_and_offers_to_ask(
    viewer: Client, emptied: BackendNode
) -> None:
    make_model()
    make_rule(min_replicas=1, unsatisfiable_reason="No other node has a free slot.")
    make_replica(emptied, config_revision="r1")
    shown = text(viewer, page_of(emptied))
    assert "No other node has a free slot." in shown
    assert "Why is llama not replaced?" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Idle: it is stopped next."),
        ({"state": ReplicaState.LOADING}, "It still comes up here"),
        (
            {
                "state": ReplicaState.UNLOADING,
                "cleanup_next_retry_at": NOW,
                "cleanup_error": "no answer",
            },
            "Its process is being stopped. The last try failed: no answer",
        ),
    ],
)
def test_each_replica_says_what_it_waits_for(
    viewer: Client, emptied: BackendNode, changes: dict[str, Any], words: str
) -> None:
    make_replica(emptied, **changes)
    assert words in text(viewer, page_of(emptied))


def test_a_refresh_of_the_drain_says_when_it_is_over(
    operator: Client, emptied: BackendNode
) -> None:
    make_replica(emptied)
    url = reverse("admin:scheduling_node", args=[emptied.pk])
    reply = operator.get(url)
    assert reply.headers["X-Live"] == "1"
    assert "Cancel the drain" in reply.content.decode()
    NodeModel.objects.all().delete()
    BackendNode.objects.update(drained_at=NOW)
    assert "Nothing stands here any more." in text(operator, url)
    BackendNode.objects.update(**facts.NO_DRAIN)
    assert "Being drained" not in text(operator, url)


def test_the_loads_of_a_node_are_listed_with_what_is_on_the_way(viewer: Client) -> None:
    node = make_node()
    assert "Nothing was loaded here yet." in text(viewer, page_of(node, "loads"))
    loading(node)
    make_job(
        node,
        "old",
        state=JobState.FAILED,
        finished_at=NOW,
        reservation_ended_at=NOW,
        last_error="out of memory",
    )
    shown = text(viewer, page_of(node, "loads"))
    assert "1 GiB of 4 GiB" in shown
    assert "out of memory" in shown
    url = reverse("admin:scheduling_node", args=[node.pk])
    assert 'id="loads"' in text(viewer, f"{url}?loads=1")
    assert 'id="loads"' not in text(viewer, url)


@pytest.mark.parametrize("count", [1, 8])
def test_a_drain_costs_the_same_however_many_replicas(
    queries: Callable[[str, int], None], emptied: BackendNode, count: int
) -> None:
    other = make_node("gpu-2")
    for number in range(count):
        make_model(f"m{number}")
        make_rule(f"m{number}", min_replicas=1)
        make_replica(emptied, f"m{number}", config_revision="r1")
        loading(other, model=f"m{number}")
    queries(reverse("admin:scheduling_node", args=[emptied.pk]), 11)
