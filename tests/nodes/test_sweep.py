from datetime import datetime, timedelta

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from nodes.models import BackendNode, ClusterEvent, ClusterState, NodeModel
from nodes.services import sweeping
from nodes.states import Liveness, Severity
from nodes.sweeping import SweepPlan
from tests.factories import NOW, make_node, make_pending, make_replica
from tests.nodes.facts import listening

pytestmark = pytest.mark.django_db


@pytest.fixture
def ticking(db: None) -> ClusterState:
    """A cluster whose last sweep is one tick old."""
    return ClusterState.objects.create(last_sweep_at=ago(15))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def sweep(*, later: float = 0) -> SweepPlan:
    plan = sweeping.sweep(now=NOW + timedelta(seconds=later))
    assert plan is not None
    return plan


def offline() -> set[str]:
    return {node.name for node in BackendNode.objects.filter(liveness=Liveness.OFFLINE)}


def test_one_silent_of_ten_goes_offline_and_its_replicas_are_announced_after_commit(
    ticking: ClusterState, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    lost = make_node("gpu-0", last_heartbeat=ago(75))
    for index in range(2):
        make_replica(lost, index=index)
    for number in range(1, 10):
        make_replica(make_node(f"gpu-{number}"))

    with listening() as heard:
        with django_capture_on_commit_callbacks(execute=True):
            sweep()
            assert heard.removed == []
        assert sorted(heard.removed) == [
            (lost.pk, "llama", index, "Its node went offline.") for index in range(2)
        ]

    assert offline() == {"gpu-0"}
    assert not NodeModel.objects.filter(node=lost).exists()
    assert NodeModel.objects.count() == 9
    losses = ClusterEvent.objects.filter(kind="replica.lost", node=lost)
    assert {loss.subject for loss in losses} == {"llama#0", "llama#1"}
    event = ClusterEvent.objects.exclude(kind="replica.lost").get()
    assert (event.kind, event.actor, event.node) == ("node.went_offline", "system", lost)
    assert event.severity == Severity.ATTENTION
    assert event.reason == "No heartbeat for 75 s."
    assert event.after == {"liveness": "offline", "replicas_lost": 2}


def test_six_silent_of_ten_lose_nothing_and_the_cluster_says_that_it_holds(
    ticking: ClusterState,
) -> None:
    for number in range(10):
        make_replica(make_node(f"gpu-{number}", last_heartbeat=ago(75 if number < 6 else 1)))

    sweep()

    assert offline() == set()
    assert NodeModel.objects.count() == 10
    ticking.refresh_from_db()
    assert ticking.holding_since == NOW
    assert "6 of 10" in ticking.holding_reason
    event = ClusterEvent.objects.get()
    assert (event.kind, event.severity) == ("cluster.holding_started", Severity.ATTENTION)


def test_the_hold_ends_by_itself_with_an_event(ticking: ClusterState) -> None:
    nodes = [make_node(f"gpu-{number}", last_heartbeat=ago(75)) for number in range(10)]
    sweep()
    BackendNode.objects.exclude(pk=nodes[0].pk).update(last_heartbeat=NOW)

    sweep(later=15)

    ticking.refresh_from_db()
    assert (ticking.holding_since, ticking.holding_reason) == (None, "")
    assert offline() == {"gpu-0"}
    assert ClusterEvent.objects.filter(kind="cluster.holding_ended").count() == 1


def test_a_new_database_holds_once_without_alarm_and_judges_a_minute_later() -> None:
    make_node("gone", last_heartbeat=ago(3600))
    make_node("here")

    sweep()
    assert offline() == set()
    started = ClusterEvent.objects.get()
    assert (started.kind, started.severity) == ("cluster.holding_started", Severity.INFO)

    for tick in (15, 30, 45):
        sweep(later=tick)
    assert offline() == set()
    sweep(later=60)
    assert offline() == {"gone"}


def test_a_waiting_node_falls_silent_and_returns_without_ever_being_let_in(
    ticking: ClusterState, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_pending(last_heartbeat=ago(75))
    sweep()
    assert offline() == {"new-1"}
    BackendNode.objects.update(last_heartbeat=NOW + timedelta(seconds=10))

    with listening() as heard, django_capture_on_commit_callbacks(execute=True):
        sweep(later=15)

    node.refresh_from_db()
    assert node.liveness == Liveness.HEALTHY
    assert node.status == "pending"
    assert not BackendNode.objects.routable().exists()
    assert heard.capacity == []


def test_a_draining_node_that_falls_silent_is_offline_and_still_draining(
    ticking: ClusterState,
) -> None:
    node = make_node(last_heartbeat=ago(75), drain_requested_at=ago(600))
    sweep()
    node.refresh_from_db()
    assert node.liveness == Liveness.OFFLINE
    assert node.drain_requested_at == ago(600)


def test_an_unhealthy_node_that_falls_silent_loses_its_replicas(ticking: ClusterState) -> None:
    make_replica(make_node(liveness=Liveness.UNHEALTHY, last_heartbeat=ago(75)))
    sweep()
    assert offline() == {"gpu-1"}
    assert not NodeModel.objects.exists()


def test_a_graceful_leaver_is_not_brought_back_by_its_last_heartbeat(
    ticking: ClusterState,
) -> None:
    make_node(
        liveness=Liveness.OFFLINE,
        left_at=ago(5),
        liveness_changed_at=ago(5),
        last_heartbeat=ago(1),
    )
    sweep()
    assert offline() == {"gpu-1"}


def test_retired_nodes_are_left_alone(ticking: ClusterState) -> None:
    make_node("silent", retired_at=ago(60), last_heartbeat=ago(75))
    make_node("loud", retired_at=ago(60), liveness=Liveness.OFFLINE, liveness_changed_at=ago(60))
    sweep()
    assert offline() == {"loud"}
    assert not ClusterEvent.objects.exists()


def test_a_recovery_is_announced_as_new_capacity(
    ticking: ClusterState, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node(
        liveness=Liveness.OFFLINE, liveness_changed_at=ago(60), liveness_reason="No heartbeat"
    )
    with listening() as heard, django_capture_on_commit_callbacks(execute=True):
        sweep()
    node.refresh_from_db()
    assert (node.liveness, node.liveness_reason) == (Liveness.HEALTHY, "")
    assert node.recoveries == [NOW]
    assert heard.capacity == [node.pk]
    assert ClusterEvent.objects.get().kind == "node.recovered"


def test_two_ticks_on_a_silent_node_are_one_transition(ticking: ClusterState) -> None:
    make_node(last_heartbeat=ago(75))
    make_node("gpu-2")
    sweep()
    sweep()
    sweep(later=1)
    assert ClusterEvent.objects.count() == 1
    ticking.refresh_from_db()
    assert ticking.sweep_fence == 3


def test_many_losses_are_spread_over_time(ticking: ClusterState) -> None:
    for number in range(20):
        make_node(f"gpu-{number:02}", last_heartbeat=ago(100 - number if number < 8 else -600))

    sizes = []
    for tick in range(0, 60, 15):
        sweep(later=tick)
        sizes.append(len(offline()))

    assert sizes == [3, 4, 6, 7]
    assert "gpu-00" in offline()
    assert "gpu-07" not in offline()
