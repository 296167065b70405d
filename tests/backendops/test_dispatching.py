import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from backendops.models import PendingBackendOp
from backendops.services import cancelling, dispatching
from backendops.states import OpState
from nodes.states import Liveness
from tests.backendops.conftest import Clock
from tests.factories import NOW, make_node, make_op

pytestmark = pytest.mark.django_db

Turn = Callable[..., None]


def test_at_most_so_many_run_on_one_node_and_in_all(queued: list[Any], turn: Turn) -> None:
    turn(ops_per_node=2, ops_at_once=5)
    for name in ("a", "b", "c"):
        node = make_node(name)
        for backend in ("x", "y", "z"):
            make_op(node, backend)
    assert dispatching.dispatch(now=NOW) == 5
    assert dispatching.dispatch(now=NOW) == 0
    for name in ("a", "b", "c"):
        assert PendingBackendOp.objects.filter(node__name=name, state="running").count() <= 2


def test_everybody_gets_one_before_anybody_gets_two(queued: list[Any], turn: Turn) -> None:
    turn(ops_per_node=2, ops_at_once=3)
    for name in ("a", "b", "c"):
        node = make_node(name)
        make_op(node, "x")
        make_op(node, "y")
    dispatching.dispatch(now=NOW)
    running = PendingBackendOp.objects.filter(state=OpState.RUNNING)
    assert {op.node.name for op in running} == {"a", "b", "c"}


@pytest.mark.parametrize(
    "fact",
    [
        {"liveness": Liveness.OFFLINE},
        {"liveness": Liveness.UNHEALTHY},
        {"approved_at": None},
        {"retired_at": NOW},
        {"drain_requested_at": NOW},
    ],
)
def test_what_is_for_a_node_that_takes_no_orders_waits(
    queued: list[Any], fact: dict[str, Any]
) -> None:
    make_op(make_node(**fact))
    assert dispatching.dispatch(now=NOW) == 0


def test_row_46_an_op_may_wait_for_days_and_is_never_reaped(
    queued: list[Any], clock: Clock
) -> None:
    node = make_node(liveness=Liveness.OFFLINE)
    op = make_op(node)
    assert dispatching.dispatch(now=clock.passes(days=3)) == 0
    op.refresh_from_db()
    assert op.state == OpState.QUEUED
    node.liveness = Liveness.HEALTHY
    node.save()
    assert dispatching.dispatch(now=clock()) == 1


def test_a_retry_is_a_new_generation_and_what_was_put_back_is_the_old_one(
    queued: list[Any],
) -> None:
    failed = make_op(make_node("a"), state=OpState.FAILED, attempts=1, percentage=50.0)
    back = make_op(make_node("b"), sent_at=NOW, percentage=50.0)
    dispatching.dispatch(now=NOW)
    failed.refresh_from_db()
    back.refresh_from_db()
    assert (failed.generation, failed.sent_at, failed.percentage) == (2, None, 0)
    assert (back.generation, back.sent_at, back.percentage) == (1, NOW, 50)


def test_row_44_what_is_for_a_draining_or_retired_node_is_cancelled_with_the_reason(
    queued: list[Any],
) -> None:
    draining = make_op(make_node("a", drain_requested_at=NOW))
    retired = make_op(make_node("b", retired_at=NOW))
    away = make_op(make_node("c", liveness=Liveness.OFFLINE))
    assert cancelling.cancel_pointless(now=NOW + timedelta(hours=1)) == 2
    for op in (draining, retired, away):
        op.refresh_from_db()
    assert (draining.state, draining.note) == (OpState.CANCELLED, "Cancelled: a is being drained.")
    assert retired.note == "Cancelled: b is retired."
    assert away.state == OpState.QUEUED


@pytest.mark.django_db(transaction=True)
def test_dispatchers_at_the_same_moment_never_pass_the_bound(queued: list[Any], turn: Turn) -> None:
    turn(ops_per_node=2, ops_at_once=4)
    for number in range(10):
        make_op(make_node(f"n{number}"))
    claimed: list[int] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        claimed.append(dispatching.dispatch(now=NOW))
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claimed) == 4
    assert PendingBackendOp.objects.filter(state=OpState.RUNNING).count() == 4
