import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendops.models import (
    GalleryBackend,
    NodeBackend,
    Operation,
    OperationShare,
    PendingBackendOp,
)
from backendops.states import OpState, Verb
from nodes.models import BackendNode
from tests.api.clients import Caller
from tests.factories import NOW, make_node, make_operation

pytestmark = pytest.mark.django_db
PATHS = [
    "/api/operations",
    "/api/operations/history?limit=500",
    "/api/operations/export",
    "/api/operations/dead-letters",
    "/api/backends?items=100",
    "/api/backends/upgrades",
    "/backends",
    "/backends/available",
    "/backends/known",
    "/api/operations/{job}",
    "/api/operations/{job}/ops",
    "/api/backends/job/{job}",
]


def grow(start: int, stop: int) -> None:
    """A node with a live, an ended and a dead op each, and a backend of its own."""
    first = make_node(f"n{start}")
    rest = [
        BackendNode(
            name=f"n{number}",
            address="a:1",
            approved_at=NOW,
            approved_by="tests",
            last_heartbeat=NOW,
            liveness_changed_at=NOW,
            created_at=NOW,
            updated_at=NOW,
        )
        for number in range(start + 1, stop)
    ]
    nodes = [first, *BackendNode.objects.bulk_create(rest)]
    for state in (OpState.QUEUED, OpState.SUCCEEDED, OpState.DEAD):
        ops = PendingBackendOp.objects.bulk_create(
            PendingBackendOp(
                node=node,
                backend=f"{state}-x",
                verb=Verb.INSTALL,
                state=state,
                created_at=NOW,
                changed_at=NOW,
                due_at=NOW,
                finished_at=None if state == OpState.QUEUED else NOW,
            )
            for node in nodes
        )
        operations = Operation.objects.bulk_create(
            Operation(
                verb=Verb.INSTALL, backend="x", target="t", requested_by="a", requested_at=NOW
            )
            for _ in range(len(ops) // 5)
        )
        OperationShare.objects.bulk_create(
            OperationShare(operation=operations[place % len(operations)], op=op)
            for place, op in enumerate(ops)
        )
    NodeBackend.objects.bulk_create(
        NodeBackend(node=node, name=node.name, version="1", first_seen_at=NOW, observed_at=NOW)
        for node in nodes
    )
    GalleryBackend.objects.bulk_create(
        GalleryBackend(gallery="main", gallery_url="u", name=node.name, checked_at=NOW)
        for node in nodes
    )


def counts(root: Caller) -> dict[str, int]:
    widest = make_operation()
    widest.ops.set(PendingBackendOp.objects.filter(state=OpState.QUEUED))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    found = {}
    for path in PATHS:
        with CaptureQueriesContext(connection) as captured:
            assert root.get(path.format(job=widest.pk)).status_code == 200
        found[path] = len(captured)
    return found


def test_a_list_of_a_thousand_costs_as_many_queries_as_one_of_fifty(root: Caller) -> None:
    root.get("/api/operations")  # a token's "last used" is written once a minute
    grow(0, 50)
    few = counts(root)
    grow(50, 1000)
    assert counts(root) == few
    assert max(few.values()) <= 12
