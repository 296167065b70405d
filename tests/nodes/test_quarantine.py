from datetime import datetime, timedelta

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidMove
from nodes.models import BackendNode, ClusterEvent, ClusterState
from nodes.services import sweeping
from nodes.states import Liveness, Severity
from tests.factories import NOW, make_node
from tests.nodes.facts import listening

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def tick(now: datetime) -> None:
    assert sweeping.sweep(now=now) is not None


def flap(times: int) -> tuple[BackendNode, datetime]:
    """A node that went offline and came back so often; and the time by then."""
    now = NOW
    ClusterState.objects.create(last_sweep_at=now)
    node = make_node()
    for _ in range(times):
        for _ in range(5):  # silent for 75 s
            now += timedelta(seconds=15)
            tick(now)
        BackendNode.objects.update(last_heartbeat=now + timedelta(seconds=1))
        now += timedelta(seconds=15)
        tick(now)
    node.refresh_from_db()
    return node, now


def beat_until(now: datetime, *, until: datetime) -> None:
    while now < until:
        now += timedelta(seconds=15)
        BackendNode.objects.update(last_heartbeat=now)
        tick(now)


def test_a_node_that_came_back_twice_may_go_on_working() -> None:
    node, _ = flap(2)
    assert node.quarantined_until is None
    assert BackendNode.objects.schedulable().get() == node


def test_the_third_time_a_node_serves_on_but_gets_nothing_new() -> None:
    node, now = flap(3)

    assert node.liveness == Liveness.HEALTHY
    assert node.quarantined_until == now + 10 * MINUTE
    assert node.quarantine_reason == "It comes and goes: 3 times back within 10 min."
    assert not BackendNode.objects.schedulable().exists()
    assert BackendNode.objects.routable().get() == node
    event = ClusterEvent.objects.get(kind="node.quarantined")
    assert event.severity == Severity.ATTENTION


def test_a_quarantine_ends_by_rule_and_tells_the_scheduler(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    node, now = flap(3)
    beat_until(now, until=now + 9 * MINUTE)
    assert not BackendNode.objects.schedulable().exists()

    with listening() as heard, django_capture_on_commit_callbacks(execute=True):
        beat_until(now + 9 * MINUTE, until=now + 10 * MINUTE)

    assert BackendNode.objects.schedulable().get() == node
    assert heard.capacity == [node.pk]
    assert ClusterEvent.objects.get(kind="node.released").actor == "system"


def test_another_flap_prolongs_the_quarantine() -> None:
    node, _ = flap(4)
    first, second = ClusterEvent.objects.filter(kind="node.quarantined").order_by("id")
    assert second.before == first.after
    assert node.quarantined_until is not None
    assert second.after["quarantined_until"] > first.after["quarantined_until"]


def test_an_operator_releases_a_node_with_a_clean_slate(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    node, now = flap(3)

    with listening() as heard, django_capture_on_commit_callbacks(execute=True):
        sweeping.release_quarantine(node, by="eve", now=now)

    node.refresh_from_db()
    assert (node.quarantined_until, node.quarantine_reason, node.recoveries) == (None, "", [])
    assert heard.capacity == [node.pk]
    assert ClusterEvent.objects.get(kind="node.released").actor == "eve"


def test_releasing_a_node_that_is_free_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidMove, match="gpu-1 is not quarantined"):
        sweeping.release_quarantine(make_node(), by="eve", now=NOW)
    assert not ClusterEvent.objects.exists()


def test_only_as_many_recoveries_are_remembered_as_the_rule_needs() -> None:
    node, _ = flap(7)
    assert len(node.recoveries) == 4
