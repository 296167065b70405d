import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction

from nodes import snapshot
from nodes.models import BackendNode, ClusterEvent, ClusterState
from nodes.services import sweeping
from nodes.states import Liveness
from nodes.sweeping import SweepPlan
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db(transaction=True)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def sweep(*, later: float = 0) -> None:
    assert sweeping.sweep(now=NOW + timedelta(seconds=later)) is not None


def offline() -> set[str]:
    return {node.name for node in BackendNode.objects.filter(liveness=Liveness.OFFLINE)}


@contextmanager
def in_another_session() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool
        pool.submit(lambda: connection.close()).result()


def test_of_two_concurrent_sweeps_one_works_and_the_other_lets_it() -> None:
    ClusterState.objects.create(last_sweep_at=ago(15))
    make_node(last_heartbeat=ago(75))
    sweeping_now, done = threading.Event(), threading.Event()

    def first() -> SweepPlan | None:
        with transaction.atomic():
            plan = sweeping.sweep(now=NOW)
            sweeping_now.set()
            done.wait(60)
            return plan

    with in_another_session() as other:
        working = other.submit(first)
        assert sweeping_now.wait(60)
        assert sweeping.sweep(now=NOW) is None
        done.set()
        assert working.result() is not None

    assert ClusterEvent.objects.count() == 1


def test_a_node_whose_heartbeat_is_being_written_is_passed_over_without_waiting() -> None:
    ClusterState.objects.create(last_sweep_at=ago(15))
    make_node("late", last_heartbeat=ago(75))
    make_node("lost", last_heartbeat=ago(75))
    writing, done = threading.Event(), threading.Event()

    def beat() -> None:
        with transaction.atomic():
            BackendNode.objects.filter(name="late").update(last_heartbeat=NOW)
            writing.set()
            done.wait(60)

    with in_another_session() as worker:
        heartbeat = worker.submit(beat)
        assert writing.wait(60)
        sweep()
        assert not heartbeat.done()
        assert offline() == {"lost"}
        done.set()
        heartbeat.result()

    sweep(later=15)
    assert offline() == {"lost"}


@pytest.mark.parametrize(
    "change",
    [{"last_heartbeat": NOW}, {"liveness": Liveness.UNHEALTHY}, {"retired_at": NOW}],
)
def test_a_node_that_changed_since_we_looked_is_not_judged_by_what_we_saw(
    change: dict[str, object],
) -> None:
    ClusterState.objects.create(last_sweep_at=ago(15))
    make_node("changed", last_heartbeat=ago(75))
    make_node("lost", last_heartbeat=ago(75))
    seen = snapshot.of_sweep(now=NOW, stale_after=timedelta(seconds=60))
    assert seen is not None
    BackendNode.objects.filter(name="changed").update(**change)

    with transaction.atomic():
        still = snapshot.held(seen.nodes)

    assert {node.name for node in seen.nodes} == {"changed", "lost"}
    assert {node.name for node in still} == {"lost"}
