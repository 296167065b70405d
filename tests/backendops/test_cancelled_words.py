from collections.abc import Callable

import pytest

from backendops.models import PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import cancelling, requesting
from backendops.states import OpState, Verb
from tests.backendops.played import PlayedNode
from tests.factories import NOW

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("answer", "ending"),
    [("cancelled", "The node gave it up."), ("disk full", "It had failed: disk full")],
)
def test_who_cancelled_and_why_is_told_together_with_how_it_ended(
    work: Callable[[], list[int]], answer: str, ending: str
) -> None:
    with PlayedNode.called("gpu-1", boot_id="b") as played:
        order = Order.of(Verb.INSTALL, backend="llama-cpp")
        target = Target(nodes=(played.node.pk,))
        operation = requesting.place(order, target, by="ada", now=NOW).operation

        def cancel() -> None:
            cancelling.cancel(operation, by="bob", now=NOW, reason="Wrong rack.")

        played.before, played.refuse = cancel, answer
        work()
    op = PendingBackendOp.objects.get()
    assert op.state == OpState.CANCELLED
    assert op.note == f"Cancelled by bob. Wrong rack. {ending}"
