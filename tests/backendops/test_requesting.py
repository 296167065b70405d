import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import requesting
from backendops.services.requesting import BlockedByOperation, KeyReused, Placed
from backendops.services.targeting import NoEligibleNode
from backendops.states import OpState, Verb
from clustermgr.lib.errors import InvalidInput, NotFound
from nodes.models import ClusterEvent
from nodes.states import Liveness, NodeType
from tests.factories import NOW, make_node, make_op, make_pending

pytestmark = pytest.mark.django_db


def place(verb: Verb, backend: str, *nodes: Any, **more: Any) -> Placed:
    target = Target(nodes=tuple(node.pk for node in nodes)) if nodes else Target(everyone=True)
    order = Order.of(verb, backend=backend)
    return requesting.place(order, target, by="ada", **{"now": NOW, **more})


def test_an_order_is_written_and_nothing_is_sent(queued: list[Any]) -> None:
    node = make_node()
    operation = place(Verb.INSTALL, "llama-cpp", node, reason="new model").operation
    [op] = operation.ops.all()
    assert (op.node, op.state, op.due_at) == (node, OpState.QUEUED, NOW)
    assert ClusterEvent.objects.get().kind == "operation.requested"


def test_row_3_unknown_agent_and_pending_nodes_are_refused_and_nothing_is_written() -> None:
    agent = make_node("agent", node_type=NodeType.AGENT, address="")
    for node in (agent, make_pending()):
        with pytest.raises(NoEligibleNode, match=node.name):
            place(Verb.INSTALL, "llama-cpp", node)
    with pytest.raises(NotFound):
        requesting.place(
            Order.of(Verb.INSTALL, backend="x"), Target(nodes=(Operation().pk,)), by="a", now=NOW
        )
    assert not Operation.objects.exists()


def test_row_2_neither_backend_nor_uri_is_refused() -> None:
    with pytest.raises(InvalidInput, match="backend is required"):
        Order.of(Verb.INSTALL)


def test_row_15_a_fan_out_takes_offline_nodes_and_skips_pending_ones_and_agents() -> None:
    make_node("up")
    make_node("away", liveness=Liveness.OFFLINE)
    make_pending("new")
    make_node("agent", node_type=NodeType.AGENT, address="")
    operation = place(Verb.INSTALL, "llama-cpp").operation
    assert {op.node.name for op in operation.ops.all()} == {"up", "away"}
    assert [skip["name"] for skip in operation.skipped] == ["new"]


def test_row_6_asking_again_for_outstanding_work_returns_the_same_job() -> None:
    node = make_node()
    first = place(Verb.INSTALL, "llama-cpp", node)
    second = place(Verb.INSTALL, "llama-cpp", node)
    assert (second.operation, second.created) == (first.operation, False)
    assert PendingBackendOp.objects.count() == 1


def test_asking_again_makes_a_failed_op_due_at_once_with_a_clean_slate() -> None:
    node = make_node()
    operation = place(Verb.INSTALL, "llama-cpp", node).operation
    later = NOW + timedelta(minutes=10)
    operation.ops.update(state=OpState.FAILED, attempts=9, due_at=later)
    place(Verb.INSTALL, "llama-cpp", node)
    [op] = operation.ops.all()
    assert (op.state, op.attempts, op.due_at, op.generation) == (OpState.QUEUED, 0, NOW, 2)


def test_a_wider_order_joins_what_is_already_under_way() -> None:
    one, two = make_node("one"), make_node("two")
    first = place(Verb.INSTALL, "llama-cpp", one).operation
    wider = place(Verb.INSTALL, "llama-cpp", one, two)
    assert wider.created
    assert PendingBackendOp.objects.count() == 2
    assert first.ops.get() in wider.operation.ops.all()


def test_a_contradicting_order_takes_the_place_of_a_queued_one() -> None:
    node = make_node()
    install = place(Verb.INSTALL, "llama-cpp", node).operation
    delete = place(Verb.DELETE, "llama-cpp", node).operation
    assert install.ops.get().state == OpState.SUPERSEDED
    assert delete.ops.get().state == OpState.QUEUED


def test_row_8_a_contradicting_order_is_refused_while_one_is_running() -> None:
    node = make_node()
    make_op(node, state=OpState.RUNNING)
    with pytest.raises(BlockedByOperation, match="install of llama-cpp is running on gpu-1"):
        place(Verb.DELETE, "llama-cpp", node)
    assert not Operation.objects.exists()


def test_row_10_a_key_returns_the_same_job_and_refuses_another_wish() -> None:
    node = make_node()
    first = place(Verb.INSTALL, "llama-cpp", node, key="k1")
    assert place(Verb.INSTALL, "llama-cpp", node, key="k1").operation == first.operation
    with pytest.raises(KeyReused):
        place(Verb.INSTALL, "whisper", node, key="k1")


def test_row_4_the_same_backend_on_two_nodes_is_two_jobs() -> None:
    first = place(Verb.INSTALL, "llama-cpp", make_node("one")).operation
    second = place(Verb.INSTALL, "llama-cpp", make_node("two")).operation
    assert first != second
    assert first.ops.get().node.name == "one"


@pytest.mark.django_db(transaction=True)
def test_row_7_twenty_equal_requests_at_once_are_one_row_and_one_job(queued: list[Any]) -> None:
    node = make_node()
    jobs: list[Any] = []
    start = threading.Barrier(20)

    def ask() -> None:
        start.wait()
        jobs.append(place(Verb.INSTALL, "llama-cpp", node).operation.pk)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 20
    assert len(set(jobs)) == 1
    assert PendingBackendOp.objects.count() == 1
