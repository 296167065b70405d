from collections.abc import Callable
from datetime import timedelta

import pytest

from backendops.models import NodeInventory, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import inventory, reaping, requesting
from backendops.states import OpState, Verb
from nodes.gateway import NodeGateway
from nodes.states import Liveness
from tests.backendops.conftest import Clock
from tests.backendops.played import PlayedNode
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_order_that_came_before_its_node_listens_was_never_sent_and_says_nothing_else(
    work: Callable[[], list[int]], clock: Clock
) -> None:
    played = PlayedNode.called("gpu-1", approved_at=NOW)
    order = Order.of(Verb.INSTALL, backend="llama-cpp")
    requesting.place(order, Target(nodes=(played.node.pk,)), by="ada", now=NOW)
    work()
    op = PendingBackendOp.objects.get()
    assert (op.state, op.sent_at, op.attempts) == (OpState.QUEUED, None, 0)
    assert op.note == "gpu-1 was only just let in and does not listen yet."
    clock.passes(seconds=10)
    with played:
        work()
    op.refresh_from_db()
    assert (op.state, op.note) == (OpState.SUCCEEDED, "")


def test_a_worker_that_was_restarted_is_not_called_unreachable_before_it_listens(
    gateway: NodeGateway,
) -> None:
    long_ago = NOW - timedelta(days=1)
    node = make_node("gpu-1", approved_at=long_ago, recoveries=[NOW])
    NodeInventory.objects.create(node=node, observed_at=long_ago)
    reaping.look([node.pk], gateway=gateway, now=NOW)
    node.refresh_from_db()
    assert node.liveness == Liveness.HEALTHY
    assert inventory.newcomers(now=NOW) == []  # asked this very moment
    assert inventory.newcomers(now=NOW + timedelta(seconds=10)) == [node.pk]


def test_one_that_is_back_for_long_and_stops_to_hear_is_unreachable(gateway: NodeGateway) -> None:
    long_ago = NOW - timedelta(days=1)
    node = make_node(
        "gpu-1",
        approved_at=long_ago,
        liveness_changed_at=long_ago,
        recoveries=[NOW - timedelta(minutes=3)],
    )
    NodeInventory.objects.create(node=node, observed_at=NOW - timedelta(hours=1))
    reaping.look([node.pk], gateway=gateway, now=NOW)
    node.refresh_from_db()
    assert node.liveness == Liveness.UNHEALTHY


def test_one_that_was_heard_since_it_is_back_and_hears_nothing_is_unreachable(
    gateway: NodeGateway,
) -> None:
    back = NOW - timedelta(minutes=1)
    node = make_node(
        "gpu-1",
        approved_at=back - timedelta(days=1),
        liveness_changed_at=back,
        recoveries=[back],
    )
    NodeInventory.objects.create(node=node, observed_at=back + timedelta(seconds=5))
    reaping.look([node.pk], gateway=gateway, now=NOW)
    node.refresh_from_db()
    assert node.liveness == Liveness.UNHEALTHY
