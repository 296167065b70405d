from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidMove
from nodes.models import BackendNode, NodeModel
from nodes.services import draining
from nodes.states import Liveness, NodeStatus, ReplicaState
from tests.factories import NOW, make_node, make_pending, make_replica

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=5)


def order(node: BackendNode, **changes: Any) -> BackendNode:
    terms: dict[str, Any] = {"by": "ada", "reason": "move", "now": NOW, "deadline": None}
    return draining.drain(node, **{**terms, **changes})


def test_a_drain_does_not_delete_the_rows_by_which_requests_are_counted() -> None:
    node = make_node()
    replica = make_replica(node, in_flight=2)
    order(node)
    assert NodeModel.objects.get() == replica
    assert not NodeModel.objects.serving().exists()
    assert draining.finish_drains(now=LATER) == []
    assert NodeModel.objects.get().in_flight == 2


def test_an_empty_node_is_drained() -> None:
    node = order(make_node())
    assert draining.finish_drains(now=LATER) == [node]
    node.refresh_from_db()
    assert (node.drained_at, node.status) == (LATER, NodeStatus.DRAINING)


def test_row_65_an_idle_replica_is_stopped_and_only_then_is_the_node_drained(
    stops: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node()
    idle, busy = make_replica(node), make_replica(node, index=1, in_flight=1)
    order(node)
    with django_capture_on_commit_callbacks(execute=True):
        assert draining.finish_drains(now=LATER) == []
    assert stops == [idle.pk]
    idle.refresh_from_db()
    busy.refresh_from_db()
    assert (idle.state, idle.cleanup_next_retry_at) == (ReplicaState.UNLOADING, LATER)
    assert busy.state == ReplicaState.LOADED
    assert draining.finish_drains(now=LATER) == []  # its slot is taken until it is acknowledged
    NodeModel.objects.all().delete()
    assert draining.finish_drains(now=LATER) == [node]


def test_a_replica_that_somebody_still_needs_is_kept_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node()
    replica = make_replica(node)
    monkeypatch.setattr(draining, "_keepers", {})
    draining.ask_before_stopping(lambda rows: {row.pk for row in rows})
    order(node, deadline=LATER)
    assert draining.finish_drains(now=LATER - timedelta(seconds=1)) == []
    replica.refresh_from_db()
    assert replica.state == ReplicaState.LOADED
    assert draining.finish_drains(now=LATER) == [node]
    replica.refresh_from_db()
    assert replica.state == ReplicaState.UNLOADING


def test_what_is_needed_serves_on_and_is_withdrawn_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node()
    needed, busy = make_replica(node), make_replica(node, index=1, in_flight=1)
    wanted = {needed.pk}
    monkeypatch.setattr(draining, "_keepers", {})
    draining.ask_before_stopping(lambda rows: {row.pk for row in rows} & wanted)
    order(node)
    assert NodeModel.objects.serving().get() == needed
    busy.refresh_from_db()
    assert (busy.state, busy.withdrawn_at) == (ReplicaState.LOADED, NOW)
    NodeModel.objects.filter(pk=needed.pk).update(in_flight=1)
    wanted.clear()
    draining.finish_drains(now=LATER)
    needed.refresh_from_db()
    assert (needed.state, needed.withdrawn_at) == (ReplicaState.LOADED, LATER)
    wanted.add(needed.pk)  # who was withdrawn is not called back by a rule that changes its mind
    NodeModel.objects.update(in_flight=0)
    draining.finish_drains(now=LATER)
    assert set(NodeModel.objects.values_list("state", flat=True)) == {ReplicaState.UNLOADING}


def test_a_worker_that_is_stopping_gets_no_new_requests_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node()
    make_replica(node)
    monkeypatch.setattr(draining, "_keepers", {})
    draining.ask_before_stopping(lambda rows: {row.pk for row in rows})
    draining.worker_drain(node, now=NOW)
    assert not NodeModel.objects.serving().exists()
    draining.worker_resume(node, now=LATER)
    assert NodeModel.objects.serving().exists()


def test_a_resumed_node_serves_with_what_was_not_stopped_yet() -> None:
    node = make_node()
    make_replica(node), make_replica(node, index=1, in_flight=1)
    order(node)
    draining.finish_drains(now=LATER)
    draining.resume(node, by="ada", now=LATER)
    assert NodeModel.objects.serving().get().replica_index == 1


def test_a_worker_that_is_stopping_ends_its_processes_itself(removals: list[Any]) -> None:
    node = make_node()
    make_replica(node)
    draining.worker_drain(node, now=NOW)
    assert draining.finish_drains(now=LATER) == [node]
    assert not NodeModel.objects.exists()


def test_a_deadline_ends_the_patience(
    stops: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node()
    replica = make_replica(node, in_flight=2)
    order(node, deadline=LATER)
    assert draining.finish_drains(now=LATER - timedelta(seconds=1)) == []
    with django_capture_on_commit_callbacks(execute=True):
        assert draining.finish_drains(now=LATER) == [node]
    assert stops == [replica.pk]
    event = node.events.get(kind="node.drained")
    assert (event.reason, event.after) == ("drain deadline passed", {"requests_cut_off": 2})


def test_a_finished_drain_is_finished_once() -> None:
    order(make_node())
    assert len(draining.finish_drains(now=LATER)) == 1
    assert draining.finish_drains(now=LATER) == []


def test_finishing_takes_the_same_statements_for_two_nodes_and_for_ten(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for round_, count in enumerate((1, 5)):
        for number in range(count):
            order(make_node(f"empty-{round_}-{number}"))
            make_replica(order(make_node(f"idle-{round_}-{number}")))
            late = order(make_node(f"late-{round_}-{number}"), deadline=NOW)
            make_replica(late, in_flight=1)
        with django_assert_num_queries(13):  # two of them open and close a savepoint
            assert len(draining.finish_drains(now=LATER)) == 2 * count


def test_draining_twice_is_once() -> None:
    node = make_node()
    order(node)
    order(node, by="bob", now=LATER)
    assert (node.drain_requested_by, node.drain_requested_at) == ("ada", NOW)
    assert node.events.count() == 1


def test_a_second_order_may_move_the_deadline() -> None:
    node = make_node()
    order(node)
    order(node, by="bob", now=LATER, deadline=LATER)
    assert (node.drain_deadline, node.drain_requested_by) == (LATER, "ada")
    assert node.events.get(kind="node.drain_moved").actor == "bob"


def test_a_retired_node_is_neither_drained_nor_resumed() -> None:
    node = make_node(retired_at=NOW, liveness=Liveness.OFFLINE)
    with pytest.raises(InvalidMove, match="retired"):
        order(node)
    with pytest.raises(InvalidMove, match="retired"):
        draining.resume(node, by="ada", now=NOW)


def test_resuming_does_not_leave_cooldowns_standing(
    capacity: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = order(make_node())
    with django_capture_on_commit_callbacks(execute=True):
        draining.resume(node, by="bob", now=LATER)
        draining.resume(node, by="bob", now=LATER)
    assert node.status == NodeStatus.HEALTHY
    assert capacity == [node.pk]
    assert node.events.filter(kind="node.resumed").count() == 1


def test_row_63_resuming_does_not_approve() -> None:
    node = order(make_pending())
    assert draining.resume(node, by="ada", now=LATER).status == NodeStatus.PENDING


def test_resuming_does_not_revive_a_silent_node() -> None:
    node = order(make_node(liveness=Liveness.OFFLINE))
    assert draining.resume(node, by="ada", now=LATER).status == NodeStatus.OFFLINE


def test_a_worker_drains_itself_and_changes_its_mind() -> None:
    node = make_node()
    draining.worker_drain(node, now=NOW)
    draining.worker_drain(node, now=LATER)
    assert (node.status, node.drain_requested_at) == (NodeStatus.DRAINING, NOW)
    assert draining.worker_resume(node, now=LATER).status == NodeStatus.HEALTHY
    assert [event.actor for event in node.events.all()] == ["worker gpu-1"] * 2


def test_row_63_a_pending_worker_does_not_get_in_by_draining_and_resuming() -> None:
    node = make_pending()
    draining.worker_drain(node, now=NOW)
    draining.worker_resume(node, now=LATER)
    assert node.status == NodeStatus.PENDING
    assert not BackendNode.objects.routable().exists()


def test_a_worker_does_not_end_an_operators_drain() -> None:
    node = order(make_node())
    draining.worker_drain(node, now=LATER)
    draining.worker_resume(node, now=LATER)
    assert (node.status, node.drain_by_worker) == (NodeStatus.DRAINING, False)
    assert node.events.count() == 1


def test_an_operator_takes_over_the_workers_drain() -> None:
    node = make_node()
    draining.worker_drain(node, now=NOW)
    order(node, now=LATER)
    assert (node.drain_by_worker, node.drain_requested_by) == (False, "ada")
    assert draining.worker_resume(node, now=LATER).status == NodeStatus.DRAINING


def test_a_worker_does_not_lift_a_cordon() -> None:
    node = make_node(cordoned_at=NOW, cordoned_by="ada")
    draining.worker_drain(node, now=NOW)
    draining.worker_resume(node, now=LATER)
    assert node.cordoned_at == NOW


def test_a_retired_worker_is_answered_and_changes_nothing() -> None:
    node = make_node(retired_at=NOW, liveness=Liveness.OFFLINE)
    draining.worker_drain(node, now=LATER)
    draining.worker_resume(node, now=LATER)
    assert (node.drain_requested_at, node.events.count()) == (None, 0)
