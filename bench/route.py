"""Pick and release: LocalAI's statements, ours, ours over HTTP, and our SQL alone."""

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import psycopg
import uvloop
from django.contrib.auth.models import User
from django.db import connection

from bench import harness, server
from bench.fleet import make_nodes
from clustermgr import tokens
from clustermgr.lib import fastlane
from clustermgr.lib.bus import default_bus
from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling import statements
from scheduling.prefixes.chains import WINDOW, chain_of
from scheduling.routing.asks import Ask
from scheduling.services import prefixing
from scheduling.services.looprouting import LoopRouter
from scheduling.services.routing import Router

NODES, OTHERS, OTHER_MODELS = 1000, 5000, 500
REPLICAS, CLIENTS = (4, 64), (1, 8, 32)
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
PAIRS = int(os.environ.get("BENCH_PAIRS", "200000"))
MODEL, TTL = "bench", timedelta(minutes=5)

Pair = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    p99: float  # milliseconds


def run() -> None:
    """Threads of one process against one PostgreSQL; `c` is a web process of its own."""
    token = _fill()
    print("a: LocalAI's statements, b: our service, in threads (bt) and on an event loop (bl),")
    print("c: ours over HTTP, d: our SQL alone")
    print(f"pairs of pick and release in {SECONDS:.0f} s each; p99 of a pair in ms")
    with server.web() as web:
        for replicas in REPLICAS:
            _replicas(replicas)
            rows = [_compared(clients, web=web, token=token) for clients in CLIENTS]
            print(f"{replicas} replicas")
            harness.table(HEADER, rows)
            _by_kind(CLIENTS[-1])
    print("goals at 32 clients: b/a at least 5x, better 10x; d/b at most 1.5x; p99 of b a quarter")
    _wear()
    default_bus().close()  # before its server, which ends with us


def _compared(clients: int, *, web: server.Web, token: str) -> tuple[object, ...]:
    a, bt, d = (_measure(way, clients) for way in (_localai, _ours, _our_sql))
    bl = uvloop.run(_on_a_loop(clients, PLAIN))
    c = asyncio.run(_over_http(web.port, token, clients))
    ways = (a, bt, bl, c, d)
    return (
        f"{clients} clients",
        *(round(one.per_second) for one in ways),
        *(one.p99 for one in ways),
        *(f"{way.per_second / a.per_second:.1f}x" for way in (bt, bl, c)),
        *(f"{d.per_second / b.per_second:.2f}x" for b in (bt, bl)),
        *(f"{b.p99 / a.p99:.2f}" for b in (bt, bl)),
    )


def _by_kind(clients: int) -> None:
    """Requests that say something of themselves: prompts that begin in few ways, sessions."""
    a = _measure(_localai, clients)
    rows = []
    for name, asks in (("plain", PLAIN), ("prompts", PROMPTED), ("sessions", SESSIONS)):
        ways = (_measure(partial(_ours, asks), clients), uvloop.run(_on_a_loop(clients, asks)))
        rates = (one.per_second / a.per_second for one in ways)
        rows.append((name, *(one.p99 for one in ways), *(f"{rate:.1f}x" for rate in rates)))
    harness.table((f"{clients} clients", "bt p99", "bl p99", "bt/a", "bl/a"), rows)


def _wear() -> None:
    """What so many dead rows do to the next ones."""
    _replicas(REPLICAS[0])
    hot_before, updates_before = _updates()
    share, clients = PAIRS // 10, CLIENTS[-1]
    rates = []
    for _ in range(10):
        began = time.perf_counter()
        _run(clients, partial(_times, share // clients), _ours)
        rates.append(share / (time.perf_counter() - began))
    hot, updates = _updates()
    share_hot = (hot - hot_before) / max(updates - updates_before, 1)
    print(
        f"{PAIRS:,} pairs: first tenth {rates[0]:,.0f}/s, last {rates[-1]:,.0f}/s"
        f" ({rates[0] / rates[-1]:.2f}x slower; goal 1.2x); {share_hot:.1%} HOT"
    )


def _updates() -> tuple[int, int]:
    """HOT ones, and all, of every connection so far."""
    fastlane.close()  # a connection tells what it did when it is idle for a second, or ends
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables"
            " WHERE relname = 'nodes_nodemodel'"
        )
        hot, updates = cursor.fetchone()
    return hot, updates


def _times(count: int, pair: Pair) -> None:
    for _ in range(count):
        pair()


def _run(
    clients: int,
    work: Callable[[Pair], None],
    way: Callable[[], AbstractContextManager[Pair]],
) -> None:
    def client() -> None:
        with way() as pair:
            work(pair)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _on_a_loop(clients: int, asks: Iterator[Ask]) -> Measured:
    """As a web process does it, without HTTP around it."""
    router, times = LoopRouter(ROUTER), list[float]()

    async def client(until: float) -> None:
        while True:
            start = time.perf_counter()
            lease = await router.acquire(next(asks))
            assert lease is not None
            await router.release(lease.id)
            times.append(time.perf_counter() - start)
            if time.perf_counter() >= until:
                return

    return await _warmed_up(clients, client, times)


async def _warmed_up(
    clients: int, client: Callable[[float], Awaitable[None]], times: list[float]
) -> Measured:
    """One pair each, as in `_measure`, then for as long as it is measured."""
    await asyncio.gather(*(client(0.0) for _ in range(clients)))
    times.clear()
    began = time.perf_counter()
    await asyncio.gather(*(client(began + SECONDS) for _ in range(clients)))
    return _measured(times, time.perf_counter() - began)


async def _over_http(port: int, token: str, clients: int) -> Measured:
    """Keep-alive connections that lease, and release what they got."""
    times: list[float] = []
    body = json.dumps({"model": MODEL}).encode()
    lease = server.request("POST", "/api/route", token=token, body=body)
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    free = [*lines]

    async def client(until: float) -> None:
        reader, writer = line = free.pop()
        while True:
            start = time.perf_counter()
            told = json.loads(await _ask(reader, writer, lease))
            path = f"/api/route/{told['lease_id']}"
            await _ask(reader, writer, server.request("DELETE", path, token=token))
            times.append(time.perf_counter() - start)
            if time.perf_counter() >= until:
                break
        free.append(line)

    measured = await _warmed_up(clients, client, times)
    for _, writer in lines:
        writer.close()
    return measured


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> bytes:
    writer.write(message)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
    body = await reader.readexactly(length)
    if head[9:12] != b"200":
        raise RuntimeError(body.decode())
    return body


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
    return _measured(list(itertools.chain(*times)), time.perf_counter() - began)


def _measured(times: list[float], took: float) -> Measured:
    ordered = sorted(times)
    return Measured(len(ordered) / took, 1000 * ordered[int(0.99 * len(ordered))])


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
def _ours(asks: Iterator[Ask] | None = None) -> Iterator[Pair]:
    asks = asks or PLAIN

    def pair() -> None:
        lease = ROUTER.acquire(next(asks))
        assert lease is not None
        ROUTER.release(lease.id)

    try:
        yield pair
    finally:
        connection.close()


@contextmanager
def _our_sql() -> Iterator[Pair]:
    with _bare_connection(lazy=True) as bare:

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
def _bare_connection(*, lazy: bool = False) -> Iterator[psycopg.Connection]:
    options = "-c synchronous_commit=off" if lazy else ""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True, options=options) as bare:
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
ask_for = partial(Ask, model=MODEL, holder="bench", ttl=TTL)
PLAIN = itertools.repeat(ask_for())
# Eight system prompts of sixteen windows, each followed by many questions
PROMPTED = itertools.cycle(
    [
        ask_for(chain=chain_of(f"{n % 8}" * 16 * WINDOW + f"question {n}", model=MODEL))
        for n in range(800)
    ]
)
SESSIONS = itertools.cycle([ask_for(session=f"session {n}") for n in range(800)])
HEADER = (
    *("", "a", "bt", "bl", "c", "d"),
    *("a p99", "bt p99", "bl p99", "c p99", "d p99"),
    *("bt/a", "bl/a", "c/a", "d/bt", "d/bl", "p99 bt/a", "p99 bl/a"),
)
ROUTER = Router(clock=lambda: datetime.now(UTC), prefixes=prefixing.default())


def _fill() -> str:
    """A cluster with much else in it; the token of a caller."""
    nodes = make_nodes(range(NODES), available_vram=2**34)
    NodeModel.objects.bulk_create(
        _replica(nodes[n % NODES].pk, f"model-{n % OTHER_MODELS}", n // OTHER_MODELS)
        for n in range(OTHERS)
    )
    user = User.objects.create_superuser("bench")
    return tokens.issue(user, name="bench", now=datetime.now(UTC))[1]


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
