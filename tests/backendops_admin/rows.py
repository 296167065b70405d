"""Fleets and orders by the hundred, in few statements."""

from typing import Any

from backendops.models import Operation, OperationShare, PendingBackendOp
from backendops.states import OUTSTANDING, OpState, Verb
from nodes.models import BackendNode
from tests.factories import NOW


def many_nodes(count: int) -> list[BackendNode]:
    return BackendNode.objects.bulk_create(
        BackendNode(
            name=f"many-{number:04}",
            address=f"many-{number}.example:50051",
            approved_at=NOW,
            approved_by="tests",
            last_heartbeat=NOW,
            liveness_changed_at=NOW,
            created_at=NOW,
            updated_at=NOW,
        )
        for number in range(count)
    )


def fan_out(nodes: list[BackendNode], backend: str = "llama-cpp", **changes: Any) -> Operation:
    """An install on all of them; `changes` are columns of the ops."""
    state = changes.pop("state", OpState.QUEUED)
    operation = Operation.objects.create(
        verb=Verb.INSTALL, backend=backend, target="all nodes", requested_by="t", requested_at=NOW
    )
    over = {} if state in OUTSTANDING else {"finished_at": NOW}
    ops = PendingBackendOp.objects.bulk_create(
        PendingBackendOp(
            node=node,
            backend=backend,
            verb=Verb.INSTALL,
            state=state,
            created_at=NOW,
            changed_at=NOW,
            due_at=NOW,
            lease_until=NOW,
            **over,
            **changes,
        )
        for node in nodes
    )
    OperationShare.objects.bulk_create(OperationShare(operation=operation, op=op) for op in ops)
    return operation
