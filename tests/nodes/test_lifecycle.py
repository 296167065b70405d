from datetime import timedelta
from uuid import UUID

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidInput, InvalidMove
from nodes.models import BackendNode, NodeModel
from nodes.services import beating, lifecycle
from nodes.states import Liveness, NodeStatus
from nodes.wire import HeartbeatReport
from tests.factories import NOW, make_node, make_pending, make_replica

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=5)


def test_a_cordoned_node_serves_on_and_gets_nothing_new() -> None:
    node = make_node()
    lifecycle.cordon(node, by="ada", reason="new  fan\nneeded", now=NOW)
    assert (node.cordoned_by, node.cordon_reason) == ("ada", "new fan needed")
    assert BackendNode.objects.routable().exists()
    assert not BackendNode.objects.schedulable().exists()


def test_cordoning_twice_is_once() -> None:
    node = make_node()
    lifecycle.cordon(node, by="ada", reason="fan", now=NOW)
    lifecycle.cordon(node, by="bob", reason="other", now=LATER)
    assert (node.cordoned_by, node.cordoned_at) == ("ada", NOW)
    assert node.events.get().reason == "fan"


def test_uncordoning_brings_capacity_once(
    capacity: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node(cordoned_at=NOW, cordoned_by="ada", cordon_reason="fan")
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.uncordon(node, by="bob", now=LATER)
        lifecycle.uncordon(node, by="bob", now=LATER)
    assert BackendNode.objects.schedulable().get() == node
    assert capacity == [node.pk]
    assert node.events.get().before == {"cordoned_by": "ada", "reason": "fan"}


def test_a_retired_node_takes_no_orders_even_from_a_stale_page() -> None:
    stale = make_node()
    BackendNode.objects.update(retired_at=NOW, liveness=Liveness.OFFLINE)
    with pytest.raises(InvalidMove, match="gpu-1 is retired; readmit it first"):
        lifecycle.cordon(stale, by="ada", reason="", now=NOW)


def test_a_reason_too_long_for_its_column_is_refused() -> None:
    with pytest.raises(InvalidInput, match="The reason is 256 bytes long"):
        lifecycle.cordon(make_node(), by="ada", reason="x" * 256, now=NOW)


def test_an_unreachable_node_is_passed_over_and_keeps_its_rows() -> None:
    node = make_node()
    replica = make_replica(node)
    assert lifecycle.mark_unreachable(node.pk, now=LATER, reason="no responders")
    node.refresh_from_db()
    assert (node.status, node.liveness_reason) == (NodeStatus.UNHEALTHY, "no responders")
    assert NodeModel.objects.get() == replica
    assert not NodeModel.objects.serving().exists()
    assert node.events.get().actor == "system"


@pytest.mark.parametrize("liveness", [Liveness.UNHEALTHY, Liveness.OFFLINE])
def test_a_missing_answer_does_not_overwrite_worse_news(liveness: Liveness) -> None:
    node = make_node(liveness=liveness)
    assert not lifecycle.mark_unreachable(node.pk, now=LATER, reason="no responders")
    node.refresh_from_db()
    assert (node.liveness, node.liveness_changed_at) == (liveness, NOW)
    assert not node.events.exists()


def test_a_missing_answer_does_not_overwrite_a_drain() -> None:
    node = make_node(drain_requested_at=NOW, drain_requested_by="ada")
    lifecycle.mark_unreachable(node.pk, now=LATER, reason="no responders")
    node.refresh_from_db()
    assert node.status == NodeStatus.DRAINING


def test_recovery_does_not_leave_cooldowns_standing(
    capacity: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node(liveness=Liveness.UNHEALTHY)
    with django_capture_on_commit_callbacks(execute=True):
        assert lifecycle.mark_reachable(node.pk, now=LATER, reason="answered")
    assert capacity == [node.pk]


def test_an_answer_does_not_revive_a_node_that_is_offline() -> None:
    node = make_node(liveness=Liveness.OFFLINE)
    assert not lifecycle.mark_reachable(node.pk, now=LATER, reason="answered")
    node.refresh_from_db()
    assert node.liveness == Liveness.OFFLINE


def test_a_leaver_is_offline_and_forgets_its_replicas() -> None:
    node = make_node()
    make_replica(node)
    lifecycle.leave(node, now=LATER)
    assert (node.status, node.left_at) == (NodeStatus.OFFLINE, LATER)
    assert not node.replicas.exists()
    event, loss = node.events.all()
    assert (event.kind, event.actor) == ("node.left", "worker gpu-1")
    assert (loss.kind, loss.subject, loss.actor) == ("replica.lost", "llama#0", "worker gpu-1")
    assert event.after == {"liveness": "offline", "replicas_removed": 1}


def test_a_leaver_is_not_revived_by_a_late_heartbeat() -> None:
    node = make_node()
    lifecycle.leave(node, now=NOW)
    report = HeartbeatReport(available_ram=7)
    beating.record([beating.Beat(node_id=node.pk, received_at=LATER, report=report)])
    node.refresh_from_db()
    assert (node.last_heartbeat, node.available_ram) == (LATER, 0)
    assert (node.status, node.left_at) == (NodeStatus.OFFLINE, NOW)


@pytest.mark.parametrize("liveness", Liveness)
def test_leaving_twice_is_once(liveness: Liveness) -> None:
    node = make_node(liveness=liveness)
    lifecycle.leave(node, now=NOW)
    lifecycle.leave(node, now=LATER)
    assert (node.left_at, node.events.count()) == (NOW, 1)


def test_leaving_ends_the_workers_own_drain() -> None:
    node = make_node(drain_requested_at=NOW, drain_by_worker=True)
    assert lifecycle.leave(node, now=LATER).status == NodeStatus.OFFLINE


def test_leaving_does_not_end_an_operators_drain() -> None:
    node = make_node(drain_requested_at=NOW, drain_requested_by="ada")
    assert lifecycle.leave(node, now=LATER).status == NodeStatus.DRAINING


def test_a_pending_worker_does_not_get_in_by_leaving() -> None:
    node = make_pending()
    assert lifecycle.leave(node, now=LATER).status == NodeStatus.PENDING
