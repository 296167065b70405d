"""1,000 nodes that tell their progress 4 times a second: what the database sees, and how late.

The path of production from NATS to the rows: gateway, desk, one process. Against it, one UPDATE
for each message.
"""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any
from uuid import uuid4

from django.conf import settings
from django.db import connection
from django.db.backends.signals import connection_created

from backendops.models import Operation, OperationShare, PendingBackendOp
from backendops.services import rollups
from backendops.services.desk import Desk
from backendops.states import OpState, Verb
from bench import harness
from bench.fleet import make_nodes
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.models import BackendNode

NODES = 1000
SECONDS = 20.0
SETTLED = 2.0  # seconds after which every node has told something
MOST_STATEMENTS, MOST_LAG = 2.0, 2.0


class Seen:
    """What the desk's thread asks of the database."""

    def __init__(self) -> None:
        self.statements = 0
        self.seconds = 0.0

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            if threading.current_thread().name == "desk":
                self.statements += 1
                self.seconds += time.perf_counter() - began

    def watch(self, connection: Any, **_: object) -> None:
        if self not in connection.execute_wrappers:
            connection.execute_wrappers.append(self)


def run() -> None:
    seen = Seen()
    connection_created.connect(seen.watch)
    nodes = make_nodes(range(NODES))
    rows = []
    for count in (1, 4):
        ops = _ops(nodes, operations=count)
        before = 1000 * _one_by_one(ops)
        with _gale(len(ops)) as gale:
            rows.append(_measure(ops, gale, seen, operations=count, one_by_one=before))
    harness.table(
        (
            *("", "messages/s", "statements/s", "per operation"),
            *("lag p50 s", "max s", "bar max s", "DB ms/s", "one by one ms/s", "ratio"),
        ),
        rows,
    )
    print(f"goal: at most {MOST_STATEMENTS:.0f} statements a second for each operation,")
    print(f"rows and bar less than {MOST_LAG:.0f} s behind what was sent")


def _measure(
    ops: list[PendingBackendOp],
    gale: "subprocess.Popen[str]",
    seen: Seen,
    *,
    operations: int,
    one_by_one: float,
) -> tuple[object, ...]:
    said = _pipe(gale)
    with _listening(ops):
        began = float(said.readline())
        time.sleep(SETTLED)
        seen.statements, seen.seconds = 0, 0.0
        started = time.monotonic()
        lags, bars = _lags(ops, began)
        passed = time.monotonic() - started
        told = float(said.readline())
    each = seen.statements / passed
    spent = 1000 * seen.seconds / passed
    return (
        f"{operations} operation{'s' if operations > 1 else ''}, {len(ops)} nodes",
        f"{told:.0f}",
        f"{each:.2f}",
        f"{each / operations:.2f}",
        f"{statistics.median(lags):.2f}",
        f"{max(lags):.2f}",
        f"{max(bars):.2f}",
        spent,
        told * one_by_one,
        f"{spent / (told * one_by_one):.3f}x",
    )


def _lags(ops: list[PendingBackendOp], began: float) -> tuple[list[float], list[float]]:
    """How far behind each row and each operation's bar were, seen five times a second."""
    wanted = PendingBackendOp.objects.filter(pk__gte=ops[0].pk).order_by()
    operations = list(Operation.objects.filter(shares__op__in=wanted).distinct())
    rows: list[float] = []
    bars: list[float] = []
    while (now := time.monotonic()) < began + SECONDS:
        shown = list(wanted.values_list("percentage", flat=True))
        rows += [now - began - SECONDS * share / 100 for share in shown]
        rolled = rollups.rollups(operations, now=datetime.now(UTC)).values()
        bars += [now - began - SECONDS * roll.percentage / 100 for roll in rolled]
        time.sleep(0.2)
    return rows, bars


@contextmanager
def _listening(ops: list[PendingBackendOp]) -> Iterator[None]:
    """Each install followed as the executor follows it, in a thread of its own."""
    bus = NatsBus(settings.CLUSTER)
    gateway = NodeGateway(bus)
    desk = Desk(clock=lambda: datetime.now(UTC))

    def follow(op: PendingBackendOp) -> None:
        with desk.holding(op):
            gateway.install(
                op.node_id,
                backend=op.backend,
                op_id=op.wire_id,
                on_progress=lambda tick: desk.tell(op.pk, tick),
            )

    threads = [threading.Thread(target=follow, args=[op]) for op in ops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
        bus.close()


def _one_by_one(ops: list[PendingBackendOp]) -> float:
    """Seconds that a statement takes which writes one message, with nothing else to do."""
    began = time.perf_counter()
    for op in ops[:300]:
        PendingBackendOp.objects.filter(pk=op.pk, fence=op.fence).update(percentage=0.0)
    return (time.perf_counter() - began) / 300


def _ops(nodes: list[BackendNode], *, operations: int) -> list[PendingBackendOp]:
    """Every node at one install, in so many operations."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE backendops_operation, backendops_pendingbackendop CASCADE")
    now = datetime.now(UTC)
    asked = [
        Operation(
            id=uuid4(),
            verb=Verb.INSTALL,
            backend=f"backend-{number}",
            target="some nodes",
            requested_by="bench",
            requested_at=now,
        )
        for number in range(operations)
    ]
    Operation.objects.bulk_create(asked)
    of = [asked[place % operations] for place in range(len(nodes))]
    ops = PendingBackendOp.objects.bulk_create(
        PendingBackendOp(
            node=node,
            backend=operation.backend,
            verb=Verb.INSTALL,
            state=OpState.RUNNING,
            created_at=now,
            changed_at=now,
            sent_at=now,
            lease_until=now + timedelta(hours=1),
            fence=1,
        )
        for node, operation in zip(nodes, of, strict=True)
    )
    OperationShare.objects.bulk_create(
        OperationShare(operation=operation, op=op) for operation, op in zip(of, ops, strict=True)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return ops


@contextmanager
def _gale(count: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "bench.gale", str(count), str(SECONDS)]
    env = {**os.environ, "LOCALAI_NATS_URL": settings.CLUSTER.nats_url}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        if _pipe(process).readline() != "ready\n":
            raise RuntimeError("the workers did not start")
        yield process
    finally:
        process.kill()
        process.wait()


def _pipe(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdout is not None
    return process.stdout
