from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings
from pytest_django import DjangoCaptureOnCommitCallbacks

from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import labels, lifecycle
from nodes.states import ReplicaState
from scheduling import snapshot
from scheduling.models import (
    LoadJob,
    ModelLoadInfo,
    ModelSchedulingConfig,
    PlacementDecision,
    RouteTally,
)
from scheduling.services import reaping, reconciling
from scheduling.services.tallying import Counts, Tallies
from scheduling.states import Cause, JobState
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica, make_rule

pytestmark = pytest.mark.django_db
Commit = DjangoCaptureOnCommitCallbacks
SOON = NOW + timedelta(seconds=50)


def vram(free: int = 24) -> dict[str, Any]:
    return {"total_vram": 24 * GIB, "available_vram": free * GIB}


def test_a_missing_replica_becomes_a_slot_a_job_and_a_decision(
    queued: list[tuple[Any, ...]], django_capture_on_commit_callbacks: Commit
) -> None:
    node = make_node(**vram())
    make_model(vram_bytes=8 * GIB)
    make_rule(min_replicas=1)
    with django_capture_on_commit_callbacks(execute=True):
        reconciling.tick(now=NOW)
    replica, job = NodeModel.objects.get(), LoadJob.objects.get()
    decision = PlacementDecision.objects.get()
    assert (replica.node, replica.state, replica.config_revision) == (node, "staging", "r1")
    assert (job.replica, job.reserved_vram, job.due_at, job.cause) == (
        replica,
        8 * GIB,
        NOW,
        Cause.FLOOR,
    )
    assert (decision.job, decision.node) == (job, node)
    assert decision.verdicts[0]["fits"]
    assert queued == [("scheduling.send_out",)]
    assert ClusterEvent.objects.filter(kind="replica.load_decided").exists()


def test_a_second_tick_finds_nothing_to_do() -> None:
    make_node()
    make_model()
    make_rule(min_replicas=1)
    reconciling.tick(now=NOW)
    again = reconciling.tick(now=NOW)
    assert again
    assert (again.place, again.unload) == ((), ())
    assert LoadJob.objects.count() == 1


def test_an_idle_replica_too_many_begins_to_leave(
    queued: list[tuple[Any, ...]], django_capture_on_commit_callbacks: Commit
) -> None:
    node = make_node(max_replicas_per_model=2)
    make_model()
    make_rule(min_replicas=1)
    long_ago = NOW - timedelta(hours=1)
    for index in range(2):
        make_replica(node, index=index, config_revision="r1", last_used=long_ago)
    with django_capture_on_commit_callbacks(execute=True):
        reconciling.tick(now=NOW)
    leaver = NodeModel.objects.get(state=ReplicaState.UNLOADING)
    assert leaver.replica_index == 1
    decision = PlacementDecision.objects.get()
    assert (decision.cause, decision.node, decision.replica_index) == (Cause.IDLE, node, 1)
    assert decision.summary == "llama#1 on gpu-1 leaves. Unused for more than 5 minutes."
    assert queued == [("scheduling.send_out",)]


def test_a_quiet_tick_takes_five_statements_however_large_the_cluster() -> None:
    make_model()
    make_rule(min_replicas=20)
    for number in range(20):
        node = make_node(f"gpu-{number}")
        labels.replace_admin(node, {"tier": "fast"}, by="tests", now=NOW)
        make_replica(node, config_revision="r1")
    assert _statements() == 5


@pytest.mark.parametrize("number", [2, 9])
def test_a_tick_that_does_everything_at_once_takes_eight_statements_however_much_it_does(
    number: int,
) -> None:
    for each in range(number):
        node = make_node(f"gpu-{each}", **vram())
        _press(f"pressed-{each}", node)
        _stop(f"idle-{each}", node)
        _retire(f"busy-{each}", node)
        _end_rolling(f"rolled-{each}", node)
        _starve(f"starving-{each}")
        _recover(f"recovering-{each}", node)
        _cancel(f"lowered-{each}", node)
    with CaptureQueriesContext(connection) as seen:
        plan = reconciling.tick(now=NOW)
    assert plan
    done = (plan.unload, plan.retire, plan.rolled, plan.starved, plan.recovered, plan.cancel)
    assert [len(some) for some in done] == [number] * len(done)
    assert sum(one.cause == Cause.PRESSURE for one in plan.place) == number
    assert sum(not query["sql"].startswith(("SAVEPOINT", "RELEASE")) for query in seen) == 8
    told = set(ClusterEvent.objects.values_list("kind", flat=True))
    assert {"replica.load_decided", "replica.unload_decided", "replica.retired"} <= told
    assert not snapshot.take(now=NOW).pressed
    rolling = ModelLoadInfo.objects.exclude(rolling_since=None)
    assert not rolling.filter(model_name__startswith="rolled").exists()


def _press(name: str, node: BackendNode) -> None:
    make_model(name)
    make_rule(name, min_replicas=1, max_replicas=2)
    make_replica(node, name, config_revision="r1")
    tally = {"picks": 1, "pressure": 1, "pressed_at": NOW}
    RouteTally.objects.create(model_name=name, minute=NOW, **tally)


def _stop(name: str, node: BackendNode) -> None:
    make_model(name)
    make_rule(name, max_replicas=1)
    make_replica(node, name, config_revision="r1", last_used=NOW - timedelta(hours=1))


def _retire(name: str, node: BackendNode) -> None:
    make_model(name, config_revision="r2", rolling_since=NOW, rolling_replicas=1)
    make_rule(name, min_replicas=1, max_replicas=2)
    make_replica(node, name, config_revision="r1", in_flight=1)
    make_replica(node, name, 1, config_revision="r2")


def _end_rolling(name: str, node: BackendNode) -> None:
    make_model(name, config_revision="r2", rolling_since=NOW, rolling_replicas=1)
    make_rule(name, min_replicas=1, max_replicas=1)
    make_replica(node, name, config_revision="r2")


def _starve(name: str) -> None:
    make_model(name)
    make_rule(name, min_replicas=1, selector="no=where")


def _recover(name: str, node: BackendNode) -> None:
    make_model(name)
    make_rule(name, min_replicas=1, unsatisfiable_since=NOW, unsatisfiable_reason="No room.")
    make_replica(node, name, config_revision="r1")


def _cancel(name: str, node: BackendNode) -> None:
    make_model(name)
    make_rule(name, max_replicas=1)
    for index in range(2):
        row = make_replica(
            node, name, index, config_revision="r1", state=ReplicaState.STAGING, address=""
        )
        make_job(node, name, replica=row, replica_index=index)


def _statements() -> int:
    """Of one tick, without the savepoint that a test's own transaction makes of it."""
    with CaptureQueriesContext(connection) as seen:
        reconciling.tick(now=NOW)
    return sum(not query["sql"].startswith(("SAVEPOINT", "RELEASE")) for query in seen)


def test_pressure_brings_one_more_replica_and_is_then_forgotten() -> None:
    on = make_node(**vram())
    for name in ("gpu-2", "gpu-3"):
        make_node(name, **vram())
    make_model()
    make_rule(min_replicas=1, max_replicas=3)
    make_replica(on, in_flight=0, config_revision="r1")
    minute = NOW - timedelta(seconds=30)
    RouteTally.objects.create(
        model_name="llama", minute=minute, picks=1, pressure=1, pressed_at=minute
    )
    reconciling.tick(now=NOW)
    assert LoadJob.objects.get().cause == Cause.PRESSURE
    assert RouteTally.objects.get().pressure == 1  # it did happen
    LoadJob.objects.update(state=JobState.LOADED, finished_at=NOW, due_at=None)
    NodeModel.objects.update(state=ReplicaState.LOADED)
    late = Tallies()  # of a process that writes what it counted seconds later
    late.add("llama", Counts(picks=1, pressure=1, pressed_at=minute), shadow=False, now=minute)
    late.flush()
    reconciling.tick(now=NOW + timedelta(seconds=5))
    assert LoadJob.objects.count() == 1


def test_what_pressed_for_one_replica_does_not_count_for_the_next() -> None:
    node = make_node(max_replicas_per_model=3, **vram())
    make_model()
    make_rule(min_replicas=1, max_replicas=3)
    make_replica(node, config_revision="r1")
    make_job(node, state=JobState.LOADED, due_at=None, finished_at=NOW)
    press = partial(RouteTally.objects.create, model_name="llama", pressed_at=SOON)
    press(minute=NOW, picks=4, pressure=4)  # three before that load, one after it
    with override_settings(CLUSTER=replace(settings.CLUSTER, prefix_pressure_threshold=3)):
        assert not snapshot.take(now=SOON).pressed
        press(minute=SOON, picks=3, pressure=3)
        assert snapshot.take(now=SOON).pressed == {"llama"}


def test_a_rule_starves_by_time_and_is_told_once() -> None:
    make_model(vram_bytes=8 * GIB)
    make_rule(min_replicas=1)
    make_node(**vram(free=2))
    for second in range(0, 90, 5):  # whoever ticks more often does not starve sooner
        reconciling.tick(now=NOW + timedelta(seconds=second))
    assert not ClusterEvent.objects.filter(kind="rule.starved").exists()
    told_at = NOW + timedelta(seconds=90)
    reconciling.tick(now=told_at)
    rule = ModelSchedulingConfig.objects.get()
    assert rule.unsatisfiable_since == NOW
    assert rule.unsatisfiable_until == told_at + timedelta(minutes=5)
    assert "2.0 GiB of VRAM are free" in rule.unsatisfiable_reason
    reconciling.tick(now=told_at + timedelta(minutes=6))
    event = ClusterEvent.objects.get(kind="rule.starved")
    assert "free 6.0 GiB VRAM on gpu-1" in event.reason
    assert PlacementDecision.objects.count() == 1


def test_a_rule_that_can_be_kept_again_recovers_with_an_event() -> None:
    node = make_node(cordoned_at=NOW)
    make_model()
    make_rule(min_replicas=1)
    reconciling.tick(now=NOW)
    reconciling.tick(now=NOW + timedelta(seconds=90))
    BackendNode.objects.filter(pk=node.pk).update(cordoned_at=None)
    reconciling.tick(now=NOW + timedelta(minutes=10))
    rule = ModelSchedulingConfig.objects.get()
    assert (rule.unsatisfiable_since, rule.unsatisfiable_until) == (None, None)
    assert ClusterEvent.objects.filter(kind="rule.recovered", subject="llama").exists()


def test_new_capacity_ends_the_pause_and_rings_the_tick(
    queued: list[tuple[Any, ...]], django_capture_on_commit_callbacks: Commit
) -> None:
    node = make_node(cordoned_at=NOW, cordoned_by="tests")
    make_model()
    make_rule(min_replicas=1)
    reconciling.tick(now=NOW)
    reconciling.tick(now=NOW + timedelta(seconds=90))
    ModelSchedulingConfig.objects.update(unsatisfiable_until=NOW + timedelta(days=36500))
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.uncordon(node, by="tests", now=NOW)
    assert ("scheduling.reconcile",) in queued
    reconciling.tick(now=NOW + timedelta(days=36499))
    assert LoadJob.objects.count() == 1


def test_one_broken_rule_does_not_stop_the_others() -> None:
    make_node()
    for name in ("a", "b", "c"):
        make_model(name)
        make_rule(name, min_replicas=1)
    ModelSchedulingConfig.objects.filter(model_name="a").update(selector="tier=(")
    ModelSchedulingConfig.objects.filter(model_name="b").update(tolerations={"not": "a list"})
    reconciling.tick(now=NOW)
    assert list(LoadJob.objects.values_list("model_name", flat=True)) == ["c"]
    broken = ModelSchedulingConfig.objects.get(model_name="a")
    assert "cannot be read" in broken.unsatisfiable_reason


def test_a_model_that_keeps_failing_waits_for_its_next_try() -> None:
    make_node()
    make_model(failures=3, retry_at=NOW + timedelta(minutes=1), last_error="out of memory")
    make_rule(min_replicas=1)
    plan = reconciling.tick(now=NOW)
    assert plan
    assert "out of memory" in plan.held[0].reason
    assert not LoadJob.objects.exists()
    reconciling.tick(now=NOW + timedelta(minutes=2))
    assert LoadJob.objects.count() == 1


def test_memory_of_a_load_under_way_is_not_given_again() -> None:
    node = make_node(**vram(free=10))
    make_model("big", vram_bytes=8 * GIB)
    make_model(vram_bytes=8 * GIB)
    make_rule(min_replicas=1)
    make_job(node, "big", reserved_vram=8 * GIB)
    plan = reconciling.tick(now=NOW)
    assert plan
    assert plan.place == ()
    assert plan.starved[0].smallest_fix == "free 6.0 GiB VRAM on gpu-1"


def test_a_lowered_maximum_gives_up_the_youngest_loads(
    queued: list[tuple[Any, ...]], django_capture_on_commit_callbacks: Commit
) -> None:
    make_model(vram_bytes=2 * GIB)
    make_rule(min_replicas=3)
    for number in range(3):
        make_node(f"gpu-{number}", **vram())
    reconciling.tick(now=NOW)
    first = LoadJob.objects.order_by("pk")[0]
    ModelSchedulingConfig.objects.update(min_replicas=0, max_replicas=1)
    queued.clear()
    with django_capture_on_commit_callbacks(execute=True):
        reconciling.tick(now=NOW)
    [(task, loads)] = queued
    assert task == "scheduling.give_up"
    reconciling.give_up(loads, now=NOW)
    assert [job.pk for job in LoadJob.objects.active()] == [first.pk]
    assert NodeModel.objects.count() == 1
    event = ClusterEvent.objects.filter(kind="replica.load_cancelled").first()
    assert event
    assert event.reason == "More run or load than max_replicas (1) allows."
    held = BackendNode.objects.values_list("reserved_vram", flat=True)
    assert sorted(held) == [0, 0, 2 * GIB]


def test_an_edit_at_the_maximum_is_rolled_one_by_one() -> None:
    make_model(config_revision="r2")
    make_rule(min_replicas=2, max_replicas=2)
    for name in ("gpu-1", "gpu-2"):
        make_replica(make_node(name), config_revision="r1")
    make_node("gpu-3")
    reconciling.tick(now=NOW)
    again = reconciling.tick(now=NOW)
    assert again
    assert "One after the other" in again.held[0].reason
    assert NodeModel.objects.filter(state=ReplicaState.LOADED).count() == 1
    assert [job.node.name for job in LoadJob.objects.all()] == ["gpu-3"]


def test_the_bell_of_a_plan_rings_for_its_jobs_as_far_as_there_is_room(
    queued: list[tuple[Any, ...]], django_capture_on_commit_callbacks: Commit
) -> None:
    make_model()
    make_rule(min_replicas=3)
    for number in range(3):
        make_node(f"gpu-{number}")
    reconciling.tick(now=NOW)
    jobs = list(LoadJob.objects.order_by("pk").values_list("pk", flat=True))
    limited = replace(settings.CLUSTER, loads_at_once=2)
    with override_settings(CLUSTER=limited), django_capture_on_commit_callbacks(execute=True):
        reaping.send_out(now=NOW)
    assert queued == [("scheduling.run_job", job) for job in jobs[:2]]
