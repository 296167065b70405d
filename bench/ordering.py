"""An order for 1,000 nodes: how long until it is accepted, against bare INSERTs of its rows."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from backendops.models import Operation, OperationShare, PendingBackendOp
from backendops.states import Verb
from bench import harness
from bench.fleet import make_nodes
from clustermgr import bootstrap
from nodes.models import BackendNode

SMALL, LARGE = 1, 1000
GOAL = 100.0  # milliseconds


def run() -> None:
    bootstrap.install_broker()  # its doorbell is part of what a caller waits for
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("bench"))
    rows = []
    made = 0
    for size in (SMALL, LARGE):
        make_nodes(range(made, size))
        made = size
        _analyze()
        everybody = list(BackendNode.objects.all())
        bare = harness.milliseconds(partial(_insert, everybody), before=_clear)
        named = [str(node.pk) for node in everybody]
        for words, wish in (("all", {"all": True}), ("named", {"nodes": named})):
            accepted = harness.milliseconds(partial(_order, client, wish), before=_clear)
            rows.append((f"{size} nodes, {words}", accepted, bare, f"{accepted / bare:.2f}x"))
    harness.table(("", "202 after ms", "bare INSERT ms", "ratio"), rows)
    print(f"goal: under {GOAL:.0f} ms whatever the fleet")


def _order(client: Client, wish: Mapping[str, object]) -> None:
    body = json.dumps({"verb": "install", "backend": "llama-cpp", **wish})
    reply = client.post("/api/operations", body, content_type="application/json")
    assert reply.status_code == 202, reply.content


@transaction.atomic
def _insert(nodes: list[BackendNode]) -> None:
    """The rows such an order needs, with nothing decided and nothing checked."""
    now = datetime.now(UTC)
    operation = Operation.objects.create(
        id=uuid4(),
        verb=Verb.INSTALL,
        backend="llama-cpp",
        target="all nodes",
        requested_by="bench",
        requested_at=now,
    )
    ops = PendingBackendOp.objects.bulk_create(
        PendingBackendOp(
            node=node,
            backend="llama-cpp",
            verb=Verb.INSTALL,
            created_at=now,
            changed_at=now,
            due_at=now,
        )
        for node in nodes
    )
    OperationShare.objects.bulk_create(OperationShare(operation=operation, op=op) for op in ops)


def _clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE backendops_operation, backendops_pendingbackendop CASCADE")


def _analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
