"""Rows of the acceptance list that no other file is about."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection
from nats.aio.client import Client
from nats.aio.msg import Msg

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.presenting.words import TONES
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
from nodes.models import ClusterEvent
from nodes.wire import InstallProgress, StoppingReply, UpgradeRequest, subjects
from tests.backendops.conftest import Clock, hasty
from tests.backendops.played import PlayedNode
from tests.contract.responder import responding
from tests.factories import NOW, make_node, make_op, make_operation
from tests.services import until

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
    both = threading.Barrier(2, timeout=60)  # passes only if both are asked before either answers
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


def test_row_19_an_upgrade_tells_how_far_it_is_before_it_is_done(
    queued: list[Any], gateway: NodeGateway, clock: Clock
) -> None:
    desk = Desk(clock=clock)
    seen: list[float] = []

    def stored(percentage: float) -> bool:
        desk.write_progress(now=clock())
        there = PendingBackendOp.objects.filter(percentage=percentage).exists()
        connection.close()
        return there

    played = PlayedNode.called("gpu-1")
    played.has("llama-cpp")
    node = played.node.pk

    async def upgrade(client: Client, message: Msg) -> None:
        wire_id = UpgradeRequest.decode(message.data).op_id
        for reached in (40.0, 100.0):
            tick = InstallProgress(
                op_id=wire_id, node_id=str(node), backend="llama-cpp", percentage=reached
            )
            await client.publish(subjects.INSTALL_PROGRESS.of(node, op=wire_id), tick.encode())
            await asyncio.to_thread(until, partial(stored, reached))
            seen.append(reached)
        await message.respond(played._upgrade(message.data) or b"")

    with played.worker as worker, responding(worker.url, subjects.UPGRADE.of(node), upgrade):
        worker.answers(subjects.LIST_BACKENDS, played._list)
        operation = order(Verb.UPGRADE, "llama-cpp", played)
        dispatching.dispatch(now=clock())
        [(op_id, fence)] = [args for name, *args in queued if name == "backendops.apply_op"]
        executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=clock)
    assert seen == [40.0, 100.0]  # each was in its row while the node was still at it
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


@hasty  # how long we really wait; by the clock of the test it is the fifteen minutes
def test_row_39_twenty_minutes_of_install_at_fifteen_of_timeout_are_amber_and_then_green(
    work: Work, gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.silent = played.lies = True

        def waited_for() -> None:
            clock.passes(minutes=15)

        played.before = waited_for
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
        told = {15: state(operation)}
        for minute in range(16, 24):
            clock.passes(minutes=1)
            if minute == 20:
                played.has("llama-cpp")
            reaping.reap(now=clock())
            reaping.check_due(gateway=gateway, now=clock())
            assert work() == []
            told[minute] = state(operation)
    amber, green = OperationState.UNCONFIRMED, OperationState.SUCCEEDED
    assert told == {minute: amber if minute < 20 else green for minute in range(15, 24)}
    assert TONES[amber] == "warn"
    op = PendingBackendOp.objects.get()
    assert (op.attempts, op.generation, len(played.did)) == (0, 1, 1)
    assert not ClusterEvent.objects.filter(kind__in=["op.failed", "op.died"]).exists()


@pytest.mark.parametrize("done", [True, False])
def test_a_late_reply_of_an_old_generation_changes_nothing(
    queued: list[Any], gateway: NodeGateway, clock: Clock, done: bool
) -> None:
    def claims() -> list[list[int]]:
        queued.clear()
        dispatching.dispatch(now=clock())
        return [args for name, *args in queued if name == "backendops.apply_op"]

    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.silent = played.lies = True
        order(Verb.UPGRADE, "llama-cpp", played)
        [(op_id, fence)] = claims()

        def wait() -> None:
            executing.apply(op_id, fence, gateway=gateway, desk=Desk(clock=clock), clock=clock)
            connection.close()

        waiter = threading.Thread(target=wait)
        waiter.start()
        until(lambda: len(played.did) == 1)
        # Our process hangs: its claim ends, the deadline passes, and another attempt begins
        reaping.reap(now=clock.passes(minutes=2))
        reaping.check_due(gateway=gateway, now=clock.passes(hours=1))
        clock.passes(minutes=1)
        assert claims() == [[op_id, fence + 1]]
        before = PendingBackendOp.objects.filter(pk=op_id).values().get()
        assert (before["generation"], before["attempts"]) == (2, 1)
        if done:
            played.has("llama-cpp", version="2")
        played.worker.answers_late(StoppingReply(success=done, error="" if done else "no").encode())
        waiter.join(60)
        assert not waiter.is_alive()
    assert PendingBackendOp.objects.filter(pk=op_id).values().get() == before


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
