"""One order for 1,000 simulated nodes: accepted, sent, done; and what it costs meanwhile."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import psutil
from django.conf import settings
from django.db import connection
from django.db.models import Max, Min

from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import requesting
from backendops.states import OUTSTANDING, OpState, Verb
from bench import harness
from bench.server import web
from bench.simulator import NODES, _fleet, _listening
from clustermgr import bootstrap
from clustermgr.embedded.parts import CELERY, WORKER
from clustermgr.embedded.scratch import until
from clustermgr.models import Tick
from nodes.services import jointokens
from nodes.services.jointokens import Terms

INSTALL = 4.0  # seconds: 200 MB at 50 MB/s, the simulator's own


def run() -> None:
    bootstrap.install_broker()
    now = datetime.now(UTC)
    _, secret = jointokens.issue("bench", by="bench", now=now, terms=Terms(auto_approve=True))
    with web() as server, _fleet(server, secret) as (_, state):
        until(lambda: _listening(state) == NODES, seconds=180)
        with _celery() as executor:
            until(lambda: _ticked() >= 2, seconds=60)  # both kinds of Celery process are at work
            began = time.perf_counter()
            operation = _order()
            accepted = time.perf_counter() - began
            watched = _watch(operation, executor, began)
    at_once = settings.CLUSTER.ops_at_once
    alone = INSTALL * -(-NODES // at_once)
    print(
        f"{NODES} nodes, {at_once} at once, {INSTALL:.0f} s each: {alone:.0f} s if nothing but the"
        f" bound took time; the aim is {1.5 * alone + 20:.0f} s"
    )
    harness.table(
        ("", "seconds", "times the bound"),
        [
            ("accepted (aim 2)", accepted, ""),
            ("first sent", watched.first, ""),
            ("last sent", watched.last, f"{watched.last / alone:.2f}x"),
            ("all done", watched.done, f"{watched.done / alone:.2f}x"),
        ],
    )
    print(f"executor: {watched.memory:.0f} MB at most (aim 300), {watched.cpu:.0f} s of CPU")
    print(
        f"progress: {watched.ticks} readings arrived as {watched.writes} writes in"
        f" {watched.done:.0f} s ({watched.writes / watched.done:.1f} a second; the aim is 2)"
    )


class _Watched:
    first = last = done = memory = cpu = 0.0
    writes = ticks = 0


def _order() -> Operation:
    order = Order.of(Verb.INSTALL, backend="llama-cpp")
    now = datetime.now(UTC)
    return requesting.place(order, Target(everyone=True), by="bench", now=now).operation


def _watch(operation: Operation, executor: psutil.Process, began: float) -> _Watched:
    watched, over = _Watched(), threading.Event()
    ops = PendingBackendOp.objects.filter(operations=operation)
    placed = operation.requested_at
    before = _updates()

    def measure() -> None:
        while not over.wait(0.5):
            watched.memory = max(watched.memory, executor.memory_full_info().uss / 1e6)

    thread = threading.Thread(target=measure)
    thread.start()
    until(lambda: not ops.filter(state__in=OUTSTANDING).exists(), seconds=300)
    watched.done = time.perf_counter() - began
    over.set()
    thread.join()
    assert ops.filter(state=OpState.SUCCEEDED).count() == NODES
    sent = ops.aggregate(first=Min("sent_at"), last=Max("sent_at"))
    watched.first = (sent["first"] - placed).total_seconds()
    watched.last = (sent["last"] - placed).total_seconds()
    watched.cpu = sum(executor.cpu_times()[:2])
    watched.writes = _updates() - before
    watched.ticks = NODES * 16  # a simulated install of 4 s tells at most 4 times a second
    return watched


def _ticked() -> int:
    """How many ticks have come to an end; the first of each follows the start at once."""
    return Tick.objects.exclude(finished_at=None).count()


def _updates() -> int:
    """How often the highest percentage of an operation was written: once per flush."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'backendops_operation'"
        )
        row = cursor.fetchone()
    return int(row[0]) if row else 0


@contextmanager
def _celery() -> Iterator[psutil.Process]:
    """The parts that carry orders out: ticks, beat, and the executor that is measured."""
    threads = ("-Q", "nodeops", "-P", "threads", "-c", "200", "-n", "nodeops@%h")
    ticks = ("-Q", "ticks", "-P", "prefork", "-c", "2", "-n", "ticks@%h")
    commands = [(*WORKER, *threads), (*WORKER, *ticks), ("beat", "--pidfile=")]
    running = [subprocess.Popen([*CELERY, *command]) for command in commands]
    try:
        yield psutil.Process(running[0].pid)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)
