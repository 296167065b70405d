"""Pick and release: LocalAI's statements, ours, ours over HTTP, and our SQL alone."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
from django.db import connection

from bench import harness
from bench.fleet import make_nodes
from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling import statements
from scheduling.routing.asks import Ask
from scheduling.services import prefixing
from scheduling.services.routing import Router

NODES, OTHERS, OTHER_MODELS = 1000, 5000, 500
REPLICAS, CLIENTS = (4, 64), (1, 8, 32)
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
MODEL, TTL = "bench", timedelta(minutes=5)

Pair = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    p99: float  # milliseconds


def run() -> None:
    _fill()
    for replicas in REPLICAS:
        _replicas(replicas)
        rows = []
        for clients in CLIENTS:
            told = {name: _measure(way, clients) for name, way in WAYS.items()}
            a, b, d = told["a"], told["b"], told["d"]
            rows.append(
                (
                    f"{clients} clients",
                    *(one.per_second for one in told.values()),
                    *(one.p99 for one in told.values()),
                    f"{b.per_second / a.per_second:.1f}x",
                    f"{d.per_second / b.per_second:.2f}x",
                )
            )
        print(f"{replicas} replicas; pairs per second, then p99 in ms")
        names = list(WAYS)
        harness.table(("", *names, *(f"{n} p99" for n in names), "b/a", "d/b"), rows)


def _measure(way: Callable[[], AbstractContextManager[Pair]], clients: int) -> Measured:
    times: list[list[float]] = [[] for _ in range(clients)]
    begin, ends = threading.Barrier(clients + 1), [0.0]

    def client(mine: list[float]) -> None:
        with way() as pair:
            pair()
            begin.wait()
            while time.perf_counter() < ends[0]:
                began = time.perf_counter()
                pair()
                mine.append(time.perf_counter() - began)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in times]
    for thread in threads:
        thread.start()
    ends[0] = time.perf_counter() + SECONDS + 0.5
    begin.wait()
    began = time.perf_counter()
    ends[0] = began + SECONDS
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    all_times = sorted(itertools.chain(*times))
    return Measured(len(all_times) / took, 1000 * all_times[int(0.99 * len(all_times))])


@contextmanager
def _localai() -> Iterator[Pair]:
    """Its sequence: a locked join in a transaction, the node once more, a decrement of its own."""
    with _bare_connection() as bare:

        def pair() -> None:
            with bare.transaction():
                row = bare.execute(LOCALAI_PICK, {"model": MODEL}).fetchone()
                assert row is not None
                bare.execute(LOCALAI_COUNT, {"id": row[0], "now": datetime.now(UTC)})
                bare.execute(LOCALAI_NODE, {"id": row[1]}).fetchone()
            bare.execute(LOCALAI_RELEASE, {"node": row[1], "model": MODEL, "index": row[2]})

        yield pair


@contextmanager
def _ours() -> Iterator[Pair]:
    def pair() -> None:
        lease = ROUTER.acquire(Ask(model=MODEL, holder="bench", ttl=TTL))
        assert lease is not None
        ROUTER.release(lease.id)

    try:
        yield pair
    finally:
        connection.close()


@contextmanager
def _our_sql() -> Iterator[Pair]:
    with _bare_connection() as bare:

        def pair() -> None:
            now, lease = datetime.now(UTC), uuid4()
            row = bare.execute(statements.TAKE, _one(lease, now)).fetchone()
            assert row is not None
            bare.execute(statements.RELEASE, {"leases": [lease], "expired_by": None}).fetchone()

        yield pair


def _one(lease: UUID, now: datetime) -> dict[str, object]:
    return {
        "model": MODEL,
        "leases": [lease],
        "holders": ["bench"],
        "untils": [now + TTL],
        "kinds": ["plain"],
        "hots": [None],
        "sessions": [""],
        "cold": [],
        "busier": 2,
        "times_busier": 1.5,
        "barred": None,
        "revision": None,
        "excluded": None,
        "now": now,
    }


@contextmanager
def _bare_connection() -> Iterator[psycopg.Connection]:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as bare:
        yield bare


LOCALAI_PICK = """
SELECT replica.id, replica.node_id, replica.replica_index
  FROM nodes_nodemodel replica JOIN nodes_backendnode node ON node.id = replica.node_id
 WHERE replica.model_name = %(model)s AND replica.state = 'loaded' AND node.liveness = 'healthy'
 ORDER BY replica.in_flight, replica.last_used, node.available_vram DESC, replica.id
 LIMIT 1 FOR UPDATE
"""
LOCALAI_COUNT = """
UPDATE nodes_nodemodel SET in_flight = in_flight + 1, last_used = %(now)s WHERE id = %(id)s
"""
LOCALAI_NODE = "SELECT * FROM nodes_backendnode WHERE id = %(id)s AND liveness = 'healthy'"
LOCALAI_RELEASE = """
UPDATE nodes_nodemodel SET in_flight = in_flight - 1
 WHERE node_id = %(node)s AND model_name = %(model)s AND replica_index = %(index)s
   AND in_flight > 0
"""
ROUTER = Router(clock=lambda: datetime.now(UTC), prefixes=prefixing.default())
WAYS = {"a": _localai, "b": _ours, "d": _our_sql}


def _fill() -> None:
    nodes = make_nodes(range(NODES), available_vram=2**34)
    NodeModel.objects.bulk_create(
        _replica(nodes[n % NODES].pk, f"model-{n % OTHER_MODELS}", n // OTHER_MODELS)
        for n in range(OTHERS)
    )


def _replicas(count: int) -> None:
    NodeModel.objects.filter(model_name=MODEL).delete()
    nodes = NodeModel.objects.order_by("node_id").values_list("node_id", flat=True).distinct()
    NodeModel.objects.bulk_create(_replica(node, MODEL, 0) for node in nodes[:count])
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _replica(node: UUID, model: str, index: int) -> NodeModel:
    now = datetime.now(UTC)
    return NodeModel(
        node_id=node,
        model_name=model,
        replica_index=index,
        address="10.0.0.1:50052",
        state=ReplicaState.LOADED,
        last_used=now,
        created_at=now,
        updated_at=now,
    )
