from collections.abc import Callable

import pytest

from backendops.models import PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import requesting
from backendops.states import OpState, Verb
from tests.backendops.conftest import Clock
from tests.backendops.played import PlayedNode
from tests.factories import NOW

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
