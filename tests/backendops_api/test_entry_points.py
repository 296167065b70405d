"""Row 81: whoever tells a node to change something, and by whichever door, leaves a record."""

import re
from pathlib import Path
from uuid import UUID

import pytest

from backendops.models import NodeBackend, Operation, PendingBackendOp
from backendops.services import cancelling
from backendops.states import OpState
from nodes.models import BackendNode, ClusterEvent
from tests.api.clients import Caller, read
from tests.backendops_api.conftest import Galleries
from tests.backendops_api.test_permissions import ORDER, WRITES, body, fleet
from tests.factories import NOW, make_op, make_replica

__all__ = ["fleet"]

ROOT = Path(__file__).resolve().parent.parent.parent
REDRIVE = "/api/operations/dead-letters/redrive"  # no new order: the old one goes on
# Galleries are read, and no node is told anything
QUESTIONS = ("/api/backends/upgrades/check", "/backends/upgrades/check")
ORDERS = [path for path, needed in WRITES if needed == ORDER and path not in (REDRIVE, *QUESTIONS)]
# What the manager asks of a node that changes something there
COMMAND = re.compile(
    r"gateway\.(install|upgrade|delete|delete_model|stop_\w+|unload)\(", re.MULTILINE
)
RECORDS = {
    "backendops/services/executing.py": "the op and its operation",
    "scheduling/services/loading.py": "the load job",
    "scheduling/services/strays.py": "the stray, and an event when it is gone",
    "scheduling/services/unloading.py": "the replica, and an event before and after",
}


@pytest.mark.parametrize("path", ORDERS)
def test_row_81_every_order_of_a_script_is_recorded_with_who_gave_it(
    path: str, root: Caller, galleries: Galleries
) -> None:
    if path.endswith("upgrade-all"):
        galleries(main=[{"name": "llama-cpp", "version": "2", "uri": "quay.io/example/llama"}])
    known = set(Operation.objects.values_list("pk", flat=True))
    reply = root.post(path, body(path))
    assert reply.status_code in (200, 202), reply.content
    [operation] = Operation.objects.exclude(pk__in=known)
    assert operation.requested_by == "root"
    assert operation.ops.exists()
    event = ClusterEvent.objects.get(kind="operation.requested")
    assert (event.actor, event.after["operation"]) == ("root", str(operation.pk))
    live = read(root.get("/api/operations"))["operations"]
    assert str(operation.pk) in [shown["jobID"] for shown in live]


def test_row_81_a_dead_letter_that_is_put_back_stays_in_its_record(root: Caller) -> None:
    assert root.post(REDRIVE, body(REDRIVE)).status_code == 200
    op = PendingBackendOp.objects.get(operations=UUID(int=2))
    assert op.state == OpState.QUEUED
    assert ClusterEvent.objects.get(kind="op.redriven").actor == "root"


def test_row_81_what_a_retirement_ends_stays_in_the_record(root: Caller) -> None:
    node = BackendNode.objects.get()
    op = make_op(node, "waiting")
    assert root.post(f"/api/nodes/{node.pk}/retire", {"reason": "sold"}).status_code == 200
    cancelling.cancel_pointless(now=NOW)
    op.refresh_from_db()
    assert (op.state, op.note) == (OpState.CANCELLED, f"Cancelled: {node.name} is retired.")
    told = ClusterEvent.objects.filter(node=node).values_list("kind", "actor")
    assert {("node.retired", "root"), ("op.cancelled", "system")} <= set(told)
    assert NodeBackend.objects.filter(node=node).exists()  # what it had stays known


@pytest.mark.parametrize("verb", ["unload", "delete"])
def test_row_81_an_unload_is_an_event_with_its_author(root: Caller, verb: str) -> None:
    node = BackendNode.objects.get()
    make_replica(node, "llama")
    reply = root.post(f"/api/nodes/{node.pk}/models/{verb}", {"model_name": "llama"})
    assert reply.status_code == 202, reply.content  # nobody is there who would stop it
    assert ClusterEvent.objects.get(kind="replica.unload_requested").actor == "root"


def test_row_81_nothing_else_of_ours_commands_a_node() -> None:
    sources = [
        path
        for app in ("backendops", "clustermgr", "nodes", "scheduling")
        for path in (ROOT / app).rglob("*.py")
    ]
    commanding = {
        str(path.relative_to(ROOT)) for path in sources if COMMAND.search(path.read_text())
    }
    assert commanding == set(RECORDS)
