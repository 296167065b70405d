"""Rows of the acceptance list that no other file is about."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import (
    cancelling,
    dispatching,
    executing,
    reaping,
    redriving,
    requesting,
    summaries,
)
from backendops.services.desk import Desk
from backendops.states import OperationState, OpState, Verb
from nodes.gateway import NodeGateway
from tests.backendops.conftest import Clock, hasty
from tests.backendops.played import PlayedNode
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db(transaction=True)

Work = Callable[[], list[int]]


def order(verb: Verb, backend: str, *played: PlayedNode) -> Operation:
    target = Target(nodes=tuple(each.node.pk for each in played))
    return requesting.place(Order.of(verb, backend=backend), target, by="ada", now=NOW).operation


def state(operation: Operation) -> OperationState:
    return summaries.summary(operation, now=NOW).state


def test_row_5_two_nodes_are_at_it_at_the_same_time(
    queued: list[Any], gateway: NodeGateway, clock: Clock
) -> None:
    both = threading.Barrier(2, timeout=20)  # passes only if both are asked before either answers
    with PlayedNode.called("one") as one, PlayedNode.called("two") as two:

        def meet() -> None:
            both.wait()

        one.before = two.before = meet
        operation = order(Verb.INSTALL, "llama-cpp", one, two)
        dispatching.dispatch(now=clock())
        rung = [args for name, *args in queued if name == "backendops.apply_op"]
        desk = Desk(clock=clock)

        def run(op_id: int, fence: int) -> None:
            executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=clock)
            connection.close()

        threads = [threading.Thread(target=run, args=args) for args in rung]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert state(operation) == OperationState.SUCCEEDED


def test_row_29_a_failed_delete_is_retried_as_a_delete(work: Work, clock: Clock) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.refuse = "in use"
        failed = order(Verb.DELETE, "llama-cpp", played)
        work()
        played.refuse = ""
        retried = redriving.retry(failed, by="bob", now=clock()).operation
        work()
    assert [verb for verb, _ in played.did] == ["delete", "delete"]
    assert retried == failed  # the same work is outstanding: it is due now, and no second job
    assert state(retried) == OperationState.SUCCEEDED


def test_a_dismissed_failure_that_is_retried_is_seen_again(work: Work, clock: Clock) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.refuse = "no space"
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
        redriving.acknowledge(operation, by="ada", now=clock())
        redriving.retry(operation, by="bob", now=clock())
        work()
    assert Operation.objects.live().get() == operation


def test_row_31_a_failure_is_told_until_it_is_dismissed_whoever_asks() -> None:
    operation = make_operation(make_op(make_node(), state=OpState.DEAD, last_error="no space"))
    for _ in range(10):  # nothing of it is in a process: each look reads the rows
        assert Operation.objects.live().get() == operation
    redriving.acknowledge(operation, by="ada", now=NOW)
    assert not Operation.objects.live().exists()
    assert Operation.objects.over().get().acknowledged_by == "ada"


def test_row_36_fifty_readers_while_ops_end_see_no_error_and_one_record() -> None:
    operation = make_operation(*(make_op(make_node(f"n{n}")) for n in range(20)))
    seen: list[OperationState] = []
    start = threading.Barrier(51)

    def read() -> None:
        start.wait()
        seen.append(state(operation))
        connection.close()

    def end() -> None:
        start.wait()
        for op in PendingBackendOp.objects.all():
            rows = PendingBackendOp.objects.filter(pk=op.pk)
            rows.update(state=OpState.SUCCEEDED, finished_at=NOW)
        connection.close()

    threads = [threading.Thread(target=end), *(threading.Thread(target=read) for _ in range(50))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 50
    assert Operation.objects.over().get() == operation


@hasty
def test_row_41_a_timeout_of_a_later_try_counts_as_little_as_one_of_the_first(
    work: Work, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.refuse = "no space"
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
        played.refuse, played.silent, played.lies = "", True, True
        clock.passes(minutes=16)
        work()
    op = PendingBackendOp.objects.get(operations=operation)
    assert (op.state, op.attempts) == (OpState.UNCONFIRMED, 1)


def test_row_48_and_50_what_was_cancelled_is_never_taken_up_again(work: Work, clock: Clock) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.INSTALL, "llama-cpp", played)
        cancelling.cancel(operation, by="bob", now=clock())
        for _ in range(2):
            reaping.reap(now=clock.passes(minutes=20))
            assert work() == []
    assert played.did == []
    assert state(operation) == OperationState.CANCELLED


def test_row_85_nothing_under_way_lacks_a_holder_or_a_time() -> None:
    rows = PendingBackendOp.objects
    node = make_node()
    for number, name in enumerate(OpState):
        make_op(node, f"backend-{number}", state=name)
    without = rows.filter(state=OpState.RUNNING, lease_until=None) | rows.filter(
        state__in=[OpState.QUEUED, OpState.FAILED, OpState.UNCONFIRMED, OpState.CANCELLING],
        due_at=None,
    )
    assert not without.exists()
