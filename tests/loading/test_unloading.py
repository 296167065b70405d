from datetime import timedelta
from typing import Any

import psutil
import pytest

from clustermgr.lib.errors import Conflict
from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import draining
from nodes.states import Liveness, ReplicaState
from scheduling import backoff
from scheduling.models import LoadJob, StrayProcess
from scheduling.services import observing, unloading
from tests.contract_worker.ours import until
from tests.factories import make_node, make_replica, make_rule
from tests.loading.conftest import Stage
from tests.loading.test_observing import frozen


def stop(stage: Stage, replica: NodeModel) -> bool:
    return unloading.stop(replica.pk, gateway=stage.gateway, clock=stage.clock)


def test_unloading_ends_exactly_its_process_and_then_its_row(stage: Stage) -> None:
    first, second = stage.loaded(), stage.loaded(index=1)
    unloading.unload_now(first, by="ada", now=stage.clock())
    assert stage.rung("scheduling.stop_replica") == [[str(first.pk)]]
    assert not NodeModel.objects.serving().filter(pk=first.pk).exists()
    assert stop(stage, first)
    assert stage.running() == {"llama#1"}
    assert NodeModel.objects.get() == second
    freed = LoadJob.objects.exclude(freed_at=None)
    assert [job.replica_index for job in freed] == [0]  # the node does not report it yet
    assert not stop(stage, first)
    kinds = ClusterEvent.objects.filter(kind__startswith="replica.unload")
    assert {(event.kind, event.actor) for event in kinds} == {
        ("replica.unload_requested", "ada"),
        ("replica.unloaded", "system"),
    }


def test_a_busy_replica_is_not_unloaded_and_the_refusal_counts(stage: Stage) -> None:
    replica = stage.loaded()
    NodeModel.objects.update(in_flight=3)
    with pytest.raises(Conflict, match="3 requests are running on llama#0"):
        unloading.unload_now(replica, by="ada", now=stage.clock())
    unloading.unload_now(replica, by="ada", now=stage.clock(), force=True)
    event = ClusterEvent.objects.get(kind="replica.unload_requested")
    assert event.after == {"requests_cut_off": 3}
    with pytest.raises(Conflict, match="unloading; only a loaded replica"):
        unloading.unload_now(replica, by="ada", now=stage.clock(), force=True)
    assert stop(stage, replica)
    with pytest.raises(Conflict, match="gone already"):
        unloading.unload_now(replica, by="ada", now=stage.clock())


def test_a_stop_that_is_not_confirmed_is_tried_again_and_keeps_its_slot(stage: Stage) -> None:
    replica = stage.loaded()
    unloading.unload_now(replica, by="ada", now=stage.clock())
    with frozen(stage):
        for attempt, pause in ((1, 2), (2, 4), (3, 8)):
            now = stage.clock()
            assert not unloading.stop(replica.pk, gateway=stage.hasty, clock=stage.clock)
            replica.refresh_from_db()
            assert (replica.state, replica.cleanup_attempts) == (ReplicaState.UNLOADING, attempt)
            assert replica.cleanup_error
            assert replica.cleanup_next_retry_at is not None
            assert timedelta(0) <= replica.cleanup_next_retry_at - now - timedelta(seconds=pause)
            assert unloading.due(now=stage.clock()) == []
            stage.clock.passes(seconds=pause + 1)
            assert unloading.due(now=stage.clock()) == [replica.pk]
    until(lambda: stop(stage, replica) or not NodeModel.objects.exists())
    assert stage.running() == set()


def test_one_whose_slot_runs_another_process_by_now_is_gone_and_that_one_a_stray(
    stage: Stage,
) -> None:
    replica = stage.loaded()
    NodeModel.objects.update(address="localhost:9")  # another process than the one we know
    unloading.unload_now(replica, by="ada", now=stage.clock())
    assert stop(stage, replica)
    assert stage.running() == {"llama#0"}
    observing.observe(gateway=stage.gateway, clock=stage.clock)
    assert StrayProcess.objects.get().model_name == "llama"


def test_the_pause_between_stops_has_a_bound() -> None:
    pauses = [backoff.delay(failures, first=backoff.STOP) for failures in range(1, 20)]
    assert pauses[:3] == [timedelta(seconds=number) for number in (2, 4, 8)]
    assert pauses[-1] == timedelta(minutes=5)


def test_two_bells_stop_it_once(stage: Stage) -> None:
    replica = stage.loaded()
    unloading.unload_now(replica, by="ada", now=stage.clock())
    assert unloading._take(replica.pk, now=stage.clock())
    assert not stop(stage, replica)
    assert stage.running() == {"llama#0"}
    stage.clock.passes(minutes=3)  # whoever took it died
    assert stop(stage, replica)


def test_a_worker_that_is_away_is_marked_and_asked_again_later(stage: Stage) -> None:
    away = make_node("away")
    replica = make_replica(away, state=ReplicaState.UNLOADING)
    assert not stop(stage, replica)
    away.refresh_from_db()
    replica.refresh_from_db()
    assert (away.liveness, replica.cleanup_attempts) == (Liveness.UNHEALTHY, 1)
    BackendNode.objects.filter(pk=away.pk).update(liveness=Liveness.OFFLINE)
    stage.clock.passes(minutes=10)
    assert unloading.due(now=stage.clock()) == []


def test_a_process_that_ended_by_itself_is_as_good_as_stopped(stage: Stage) -> None:
    replica = stage.loaded()
    for child in stage.real.worker.family():
        child.kill()
    psutil.wait_procs(stage.real.worker.family(), timeout=60)
    unloading.unload_now(replica, by="ada", now=stage.clock())
    assert stop(stage, replica)


def test_a_drain_waits_for_requests_stops_and_then_is_done(stage: Stage) -> None:
    replica = stage.loaded()
    NodeModel.objects.update(in_flight=1)
    draining.drain(stage.node, by="ada", reason="", now=stage.clock(), deadline=None)
    assert draining.finish_drains(now=stage.clock()) == []
    assert stage.running() == {"llama#0"}
    NodeModel.objects.update(in_flight=0)
    assert draining.finish_drains(now=stage.clock()) == []
    assert stage.rung("scheduling.stop_replica") == [[str(replica.pk)]]
    assert stop(stage, replica)
    assert stage.running() == set()
    assert draining.finish_drains(now=stage.clock()) == [stage.node]


def test_a_drain_keeps_what_the_minimum_needs_until_it_serves_elsewhere(stage: Stage) -> None:
    replica = stage.loaded()
    make_rule(min_replicas=1)
    draining.drain(stage.node, by="ada", reason="", now=stage.clock(), deadline=None)
    draining.finish_drains(now=stage.clock())
    replica.refresh_from_db()
    assert replica.state == ReplicaState.LOADED
    other = make_node("other")
    outdated: dict[str, Any] = {"config_revision": "r0"}
    elsewhere = make_replica(other, **outdated)
    draining.finish_drains(now=stage.clock())
    replica.refresh_from_db()
    assert replica.state == ReplicaState.LOADED  # of another revision: no replacement
    NodeModel.objects.filter(pk=elsewhere.pk).update(config_revision="r1")
    draining.finish_drains(now=stage.clock())
    replica.refresh_from_db()
    assert replica.state == ReplicaState.UNLOADING
