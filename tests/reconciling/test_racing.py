"""What others commit while a tick is looking, deciding and writing."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from nodes.models import BackendNode, NodeModel
from nodes.services import announce, draining, labels, lifecycle
from nodes.states import ReplicaState
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import defining, jobs, policies, reconciling
from scheduling.states import JobState
from tests.factories import NOW, make_job, make_model, make_node, make_replica, make_rule
from tests.locks import waiting
from tests.routing.test_lock_order import on_its_own_connection
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)
SOON = NOW + timedelta(seconds=100)
LOOKING = range(1, 6)  # the lock, and a picture of four statements


@contextmanager
def meanwhile(act: Callable[[], object], *, after: int) -> Iterator[None]:
    """Have somebody else do something, and commit it, after so many of its statements."""
    seen = 0

    def elsewhere() -> None:
        try:
            act()
        finally:
            connection.close()

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen
        result = execute(sql, params, many, context)
        seen += 1
        if seen == after:
            with ThreadPoolExecutor(1) as another:
                another.submit(elsewhere).result()
        return result

    with connection.execute_wrapper(watch):
        yield
    assert seen >= after


@pytest.mark.parametrize("after", LOOKING)
def test_a_load_that_is_published_under_the_eyes_of_a_tick_is_counted_once(after: int) -> None:
    make_model()
    make_rule(min_replicas=1, max_replicas=1)
    make_node("gpu-2")
    row = make_replica(make_node(), state=ReplicaState.LOADING, config_revision="r1")
    job = make_job(row.node, replica=row, state=JobState.LOADING, fence=1, lease_until=SOON)
    with meanwhile(lambda: jobs.publish(job, now=NOW), after=after):
        plan = reconciling.tick(now=NOW)
    assert plan is not None
    assert (plan.place, plan.unload) == ((), ())
    assert NodeModel.objects.get().state == ReplicaState.LOADED


@pytest.mark.parametrize("after", LOOKING)
@pytest.mark.parametrize("how", ["cordon", "drain"])
def test_nothing_is_loaded_on_a_node_that_was_closed_between_look_and_write(
    after: int, how: str
) -> None:
    node = make_node()
    make_model()
    make_rule(min_replicas=1)

    def close() -> None:
        if how == "cordon":
            lifecycle.cordon(node, by="ada", reason="", now=NOW)
        else:
            draining.drain(node, by="ada", reason="", now=NOW, deadline=None)

    with meanwhile(close, after=after):
        reconciling.tick(now=NOW)
    assert not LoadJob.objects.exists()
    assert not NodeModel.objects.exists()


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("after", LOOKING)
def test_a_rule_edited_under_the_eyes_of_a_tick_is_tried_by_the_next(
    after: int, told: bool
) -> None:
    starving(told=told)

    def edit() -> None:
        document = {"model_name": "llama", "min_replicas": 1, "selector": ""}
        policies.put(document, by="ada", now=SOON)

    with meanwhile(edit, after=after):
        reconciling.tick(now=SOON)
    reconciling.tick(now=SOON + timedelta(seconds=1))
    assert LoadJob.objects.count() == 1


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("after", LOOKING)
def test_capacity_that_comes_under_the_eyes_of_a_tick_is_used_by_the_next(
    after: int, told: bool
) -> None:
    node = starving(told=told)

    def label() -> None:
        labels.replace_admin(node, {"tier": "fast"}, by="ada", now=SOON)

    with meanwhile(label, after=after):
        reconciling.tick(now=SOON)
    reconciling.tick(now=SOON + timedelta(seconds=1))
    assert LoadJob.objects.count() == 1


def test_a_thousand_changes_of_capacity_are_one_bell_and_end_a_pause_that_began_meanwhile(
    queued: list[tuple[Any, ...]],
) -> None:
    node = starving(told=True)

    def change() -> None:
        labels.replace_admin(node, {"tier": "fast"}, by="ada", now=SOON)
        with ThreadPoolExecutor(8) as crowd:
            for one in [crowd.submit(tell, 125) for _ in range(8)]:
                one.result()

    def tell(times: int) -> None:
        for _ in range(times):
            announce.capacity_changed(node.pk)
        connection.close()

    queued.clear()
    with meanwhile(change, after=LOOKING[-1]):
        reconciling.tick(now=SOON)
    rule = ModelSchedulingConfig.objects.get()
    assert rule.unsatisfiable_until is not None
    assert rule.unsatisfiable_until > SOON
    assert queued == [("scheduling.reconcile",)]
    reconciling.tick(now=SOON + timedelta(seconds=1))
    assert LoadJob.objects.count() == 1


def test_a_model_can_be_deleted_while_a_tick_holds_the_node_of_its_load() -> None:
    node = make_node()
    for name, least in (("hungry", 2), ("llama", 1)):
        make_model(name)
        make_rule(name, min_replicas=least)
    row = make_replica(node, "hungry", state=ReplicaState.LOADING, config_revision="r1")
    make_job(node, "hungry", replica=row, state=JobState.LOADING, fence=1, lease_until=SOON)

    def delete() -> None:
        on_its_own_connection(lambda: defining.delete("hungry", by="ada", now=NOW, force=True))

    with ThreadPoolExecutor(1) as another:

        def begin() -> None:
            deleted.append(another.submit(delete))
            until(lambda: waiting() > 0)

        deleted: list[Future[None]] = []
        with meanwhile(begin, after=LOOKING[-1] + 1):  # llama has its place
            plan = reconciling.tick(now=NOW)
        deleted[0].result()
    assert plan is not None
    assert [one.model for one in plan.starved] == ["hungry"]
    assert list(ModelLoadInfo.objects.values_list("pk", flat=True)) == ["llama"]


def starving(*, told: bool) -> BackendNode:
    """A rule that no node matches; whether an operator has heard of it is another question."""
    node = make_node()
    make_model()
    make_rule(min_replicas=1, selector="tier=fast")
    reconciling.tick(now=NOW)
    if told:
        ModelSchedulingConfig.objects.update(unsatisfiable_until=NOW)
    return node
