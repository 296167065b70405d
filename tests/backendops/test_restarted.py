from dataclasses import replace
from datetime import timedelta

import pytest

from backendops.models import PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import dispatching, executing, requesting
from backendops.services.desk import Desk
from backendops.states import OpState, Verb
from nodes.gateway import NodeGateway
from nodes.models import BackendNode
from nodes.states import Liveness
from tests.backendops.conftest import Clock
from tests.backendops.played import PlayedNode
from tests.factories import NOW

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_order_whose_worker_was_restarted_at_it_fails_in_moments_and_is_tried_again(
    gateway: NodeGateway, clock: Clock
) -> None:
    watchful = NodeGateway(
        gateway.bus, cluster=replace(gateway.cluster, probe_after=timedelta(milliseconds=50))
    )
    with PlayedNode.called("gpu-1", boot_id="before") as played:
        nodes = BackendNode.objects.filter(pk=played.node.pk)
        played.silent = True

        def come_back() -> None:
            nodes.update(boot_id="after")

        played.before = come_back
        target = Target(nodes=(played.node.pk,))
        requesting.place(Order.of(Verb.REINSTALL, backend="llama-cpp"), target, by="ada", now=NOW)
        dispatching.dispatch(now=NOW)
        op = PendingBackendOp.objects.get()
        executing.apply(op.pk, op.fence, gateway=watchful, desk=Desk(clock=clock), clock=clock)
    op.refresh_from_db()
    assert (op.state, op.attempts) == (OpState.FAILED, 1)
    assert op.last_error == "The worker was restarted before it had answered."
    assert nodes.get().liveness == Liveness.HEALTHY  # it is back; only the work is lost
