from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from backendops.models import NodeBackend, Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import dispatching, executing, reaping, requesting
from backendops.services.desk import Desk
from backendops.states import OpState, Verb
from nodes.gateway import NodeGateway
from nodes.models import ClusterEvent, NodeModel
from nodes.states import Liveness
from nodes.wire import StoppingReply, subjects
from tests.backendops.conftest import Clock, hasty
from tests.backendops.played import PlayedNode
from tests.factories import NOW, make_node, make_op, make_replica
from tests.scripted import ScriptedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Work = Callable[[], list[int]]


def order(verb: Verb, backend: str, *played: PlayedNode, **more: Any) -> Operation:
    target = Target(nodes=tuple(each.node.pk for each in played))
    wanted = Order.of(verb, backend=backend, **more)
    return requesting.place(wanted, target, by="ada", now=NOW).operation


def only(operation: Operation) -> PendingBackendOp:
    return PendingBackendOp.objects.get(operations=operation)


def test_an_install_succeeds_when_the_inventory_shows_it(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
    op = only(operation)
    assert (op.state, op.percentage, op.attempts) == (OpState.SUCCEEDED, 100.0, 0)
    assert NodeBackend.objects.get().name == "llama-cpp"
    assert ClusterEvent.objects.filter(kind="backend.installed", node=op.node).exists()


def test_row_82_uri_name_alias_and_galleries_reach_the_worker_also_on_a_retry(
    work: Work, clock: Clock
) -> None:
    galleries = [{"name": "g", "url": "https://g.example/index.yaml"}]
    with PlayedNode.called("gpu-1", liveness=Liveness.OFFLINE) as played:
        more = {"uri": "oci://x/y:1", "name": "custom", "alias": "cu", "galleries": galleries}
        order(Verb.INSTALL, "", played, **more)
        assert work() == []
        played.node.liveness = Liveness.HEALTHY
        played.node.save()
        clock.passes(hours=2)
        work()
    [(_, asked)] = played.did
    assert (asked["backend"], asked["uri"], asked["name"]) == ("custom", "oci://x/y:1", "custom")
    assert "https://g.example/index.yaml" in asked["backend_galleries"]


def test_a_node_that_says_yes_and_has_nothing_has_failed(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.lies = True
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
    op = only(operation)
    assert op.state == OpState.FAILED
    assert "not in the node's inventory" in op.last_error


def test_row_28_an_upgrade_asks_for_an_upgrade_and_must_replace_what_was_there(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.lies = True
        operation = order(Verb.UPGRADE, "llama-cpp", played)
        work()
        assert "was not replaced" in only(operation).last_error
        played.lies = False
        requesting.place(
            Order.of(Verb.UPGRADE, backend="llama-cpp"),
            Target(nodes=(played.node.pk,)),
            by="ada",
            now=NOW,
        )
        work()
    assert [verb for verb, _ in played.did] == ["upgrade", "upgrade"]
    assert only(operation).state == OpState.SUCCEEDED


def test_row_83_a_reinstall_is_forced_and_counts_only_when_something_is_new(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        operation = order(Verb.REINSTALL, "llama-cpp", played)
        work()
    [(verb, asked)] = played.did
    assert (verb, asked["force"]) == ("install", True)
    assert only(operation).state == OpState.SUCCEEDED


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("no gallery has a backend 'nope'", OpState.DEAD),
        ("no gallery has a backend 'nope'; gallery g: timed out", OpState.FAILED),
    ],
)
def test_what_no_gallery_has_is_a_dead_letter_at_once_unless_one_could_not_be_read(
    work: Work, words: str, state: OpState
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.refuse = words
        operation = order(Verb.INSTALL, "nope", played)
        work()
    op = only(operation)
    assert (op.state, op.attempts, op.last_error) == (state, 1, words)


def test_an_event_tells_a_traceback_in_a_sentence_and_the_op_has_it_whole(work: Work) -> None:
    words = "backend x exited:\nTraceback\n  File x\nImportError: no GPU"
    with PlayedNode.called("gpu-1") as played:
        played.refuse = words
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
    assert only(operation).last_error == words
    told = ClusterEvent.objects.get(kind="op.failed").reason
    assert told == "backend x exited: ImportError: no GPU"


def test_row_18_an_upgrade_of_what_is_not_there_is_a_dead_letter_at_once(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.UPGRADE, "llama-cpp", played)
        work()
    assert played.did == []
    assert (only(operation).state, only(operation).attempts) == (OpState.DEAD, 1)


def test_row_20_an_old_worker_is_told_to_install_by_force(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.worker.__exit__()
        played.worker = ScriptedWorker(node_id=played.node.pk)
        with played.worker:
            played.worker.answers(subjects.INSTALL, played._install)
            played.worker.answers(subjects.LIST_BACKENDS, played._list)
            operation = order(Verb.UPGRADE, "llama-cpp", played)
            work()
    [(verb, asked)] = played.did
    assert (verb, asked["force"]) == ("install", True)
    assert "by force" in only(operation).note


def test_a_delete_that_the_node_refuses_is_a_failure(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.refuse = "in use"
        operation = order(Verb.DELETE, "llama-cpp", played)
        work()
    assert (only(operation).state, only(operation).last_error) == (OpState.FAILED, "in use")


def test_a_refused_delete_of_what_is_not_there_is_done(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.refuse = "unknown backend"
        operation = order(Verb.DELETE, "llama-cpp", played)
        work()
    assert only(operation).state == OpState.SUCCEEDED


def test_no_responders_marks_the_node_and_tries_again_later(work: Work, clock: Clock) -> None:
    node = make_node(approved_at=NOW - timedelta(days=1))
    wanted = Order.of(Verb.INSTALL, backend="llama-cpp")
    placed = requesting.place(wanted, Target(nodes=(node.pk,)), by="ada", now=NOW)
    work()
    op = only(placed.operation)
    node.refresh_from_db()
    assert (op.state, op.attempts, node.liveness) == (OpState.FAILED, 1, Liveness.UNHEALTHY)
    assert op.due_at is not None
    assert clock() < op.due_at <= clock() + timedelta(seconds=30)
    clock.passes(minutes=20)
    assert work() == []  # not before the node is back


def test_a_node_that_was_only_just_let_in_is_given_time_to_listen(work: Work, clock: Clock) -> None:
    node = make_node(approved_at=NOW)
    wanted = Order.of(Verb.INSTALL, backend="llama-cpp")
    placed = requesting.place(wanted, Target(nodes=(node.pk,)), by="ada", now=NOW)
    work()
    node.refresh_from_db()
    assert (only(placed.operation).state, only(placed.operation).attempts) == (OpState.QUEUED, 0)
    assert node.liveness == Liveness.HEALTHY
    with PlayedNode(node=node) as played:
        clock.passes(seconds=10)
        work()
    assert len(played.did) == 1
    assert only(placed.operation).state == OpState.SUCCEEDED


@hasty
def test_row_37_a_timeout_is_not_a_failure(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.silent = True
        played.lies = True
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
    op = only(operation)
    assert (op.state, op.attempts, op.lease_until) == (OpState.UNCONFIRMED, 0, None)
    assert op.due_at is not None
    assert op.give_up_at is not None


@hasty
def test_row_39_what_is_unconfirmed_turns_green_by_itself(
    work: Work, gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.silent = True
        played.lies = True
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
        reaping.check_due(gateway=gateway, now=clock.passes(minutes=5))
        assert only(operation).state == OpState.UNCONFIRMED
        played.has("llama-cpp")
        reaping.check_due(gateway=gateway, now=clock.passes(minutes=1))
    assert only(operation).state == OpState.SUCCEEDED


@hasty
def test_row_39_what_is_still_absent_at_the_deadline_has_failed(
    work: Work, gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.silent = True
        played.lies = True
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
        reaping.check_due(gateway=gateway, now=clock.passes(hours=1))
    assert (only(operation).state, only(operation).attempts) == (OpState.FAILED, 1)


@hasty
def test_row_40_an_unconfirmed_upgrade_is_not_settled_by_the_old_files(
    work: Work, gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        played.silent = True
        played.lies = True
        operation = order(Verb.UPGRADE, "llama-cpp", played)
        work()
        reaping.check_due(gateway=gateway, now=clock.passes(minutes=5))
        assert only(operation).state == OpState.UNCONFIRMED
        played.has("llama-cpp", version="2")
        reaping.check_due(gateway=gateway, now=clock.passes(minutes=5))
    assert only(operation).state == OpState.SUCCEEDED


@hasty
def test_a_worker_that_is_gone_when_asked_about_has_failed_at_it(
    work: Work, gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.silent = True
        played.lies = True
        operation = order(Verb.INSTALL, "llama-cpp", played)
        work()
    reaping.check_due(gateway=gateway, now=clock.passes(minutes=1))
    played.node.refresh_from_db()
    assert only(operation).state == OpState.FAILED
    assert played.node.liveness == Liveness.UNHEALTHY


def test_row_43_the_tenth_failure_is_a_dead_letter_that_stays_visible(
    work: Work, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.refuse = "no space left"
        operation = order(Verb.INSTALL, "llama-cpp", played)
        for _ in range(10):
            work()
            clock.passes(minutes=16)
        assert work() == []
    op = only(operation)
    assert (op.state, op.attempts, op.last_error) == (OpState.DEAD, 10, "no space left")
    assert len(played.did) == 10
    assert len({asked["op_id"] for _, asked in played.did}) == 10
    assert Operation.objects.live().get() == operation


def test_upgrading_forgets_exactly_the_processes_that_were_stopped(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        doomed = make_replica(played.node, "llama", 0)
        spared = make_replica(played.node, "llama", 1)
        played._stopping = lambda: StoppingReply(  # type: ignore[method-assign]
            success=True, stopped_process_keys=("llama#0",), reports_stopped_processes=True
        )
        order(Verb.UPGRADE, "llama-cpp", played)
        work()
    assert list(NodeModel.objects.all()) == [spared]
    assert doomed.pk != spared.pk


def test_two_deliveries_of_one_doorbell_send_once(
    queued: list[Any], gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        order(Verb.INSTALL, "llama-cpp", played)
        dispatching.dispatch(now=clock())
        [(op_id, fence)] = [args for name, *args in queued if name == "backendops.apply_op"]
        desks = [Desk(clock=clock), Desk(clock=clock)]
        took = [
            executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=clock) for desk in desks
        ]
    assert took == [True, False]
    assert len(played.did) == 1


def test_a_late_reply_of_an_old_claim_changes_nothing(
    queued: list[Any], gateway: NodeGateway, clock: Clock
) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.INSTALL, "llama-cpp", played)
        dispatching.dispatch(now=clock())
        [(op_id, fence)] = [args for name, *args in queued if name == "backendops.apply_op"]

        def stolen() -> None:  # while we wait, our lease ends and another process claims it
            reaping.reap(now=clock() + timedelta(minutes=5))
            dispatching.dispatch(now=clock() + timedelta(minutes=5))

        played.before = stolen
        played.refuse = "no"
        executing.apply(op_id, fence, gateway=gateway, desk=Desk(clock=clock), clock=clock)
    op = only(operation)
    assert (op.state, op.attempts, op.fence) == (OpState.RUNNING, 0, fence + 1)


def test_row_45_a_claim_that_was_never_sent_goes_back_without_a_count(
    queued: list[Any], clock: Clock
) -> None:
    op = make_op(make_node())
    dispatching.dispatch(now=clock())
    assert reaping.reap(now=clock.passes(minutes=2)) == 1
    op.refresh_from_db()
    assert (op.state, op.attempts, op.generation) == (OpState.QUEUED, 0, 1)


@pytest.mark.parametrize(
    ("verb", "boot_id", "expected"),
    [
        (Verb.INSTALL, "", OpState.QUEUED),
        (Verb.UPGRADE, "", OpState.UNCONFIRMED),
        (Verb.DELETE, "", OpState.UNCONFIRMED),
        (Verb.UPGRADE, "ours", OpState.QUEUED),
    ],
)
def test_what_a_dead_process_had_sent_is_sent_again_only_where_that_is_harmless(
    queued: list[Any], clock: Clock, verb: Verb, boot_id: str, expected: OpState
) -> None:
    node = make_node(boot_id=boot_id)
    op = make_op(node, verb=verb, state=OpState.RUNNING, sent_at=NOW, lease_until=NOW)
    reaping.reap(now=clock.passes(minutes=1))
    op.refresh_from_db()
    assert (op.state, op.attempts, op.generation) == (expected, 0, 1)
