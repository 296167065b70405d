"""Heartbeats beside a storm of picks: of replicas on the same nodes, and of replicas elsewhere.

Both storms are the same work on the same server; only whose rows they touch differs. What a beat
takes longer beside the first than beside the second, it has waited for locks.
"""

import asyncio
import json
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from typing import Any

import psycopg
from django.contrib.auth.models import User
from django.db import connection

from bench import harness
from bench.fleet import make_nodes
from bench.server import Storm, Web, request, web
from clustermgr import tokens
from nodes.models import BackendNode, NodeModel
from nodes.services import beating, jointokens
from nodes.services.beating import Beat
from nodes.states import ReplicaState
from nodes.wire import HeartbeatReport
from scheduling.routing.asks import Ask
from scheduling.services import prefixing
from scheduling.services.routing import Router

NODES, CALLERS = 8, 8
HERE, ELSEWHERE = "here", "elsewhere"
SECONDS = float(os.environ.get("BENCH_SECONDS", "1"))
TURNS = 8
TTL = timedelta(minutes=5)
PER_SECOND = 100  # beats over HTTP

Figures = tuple[float, float]  # p50 and p99 in milliseconds
Caller = Callable[[str, Event], None]


def run() -> None:
    token, secret = jointokens.issue("bench", by="bench", now=datetime.now(UTC))
    nodes = make_nodes(range(NODES), join_token=token)
    _replicas(HERE, nodes)
    _replicas(ELSEWHERE, make_nodes(range(NODES, 2 * NODES)))
    print(f"the beats of {NODES} nodes in one statement, {CALLERS} callers that pick and release")
    rows: list[tuple[object, ...]] = [("alone", *_percentiles(_beat(nodes)), "")]
    for name, caller in (("our picks", _ours), ("LocalAI's locked join", _localai)):
        apart, beside = _in_turns(caller, nodes)
        rows.append((f"beside {name} elsewhere", *apart, ""))
        rows.append((f"beside {name} on these nodes", *beside, _ratio(beside, apart)))
    harness.table(("", "p50 ms", "p99 ms", "here / elsewhere"), rows)
    _over_http(nodes, secret)


def _in_turns(caller: Caller, nodes: Sequence[BackendNode]) -> tuple[Figures, Figures]:
    """Elsewhere and here, a second each: what else the machine does is in both."""
    times: dict[str, list[float]] = {ELSEWHERE: [], HERE: []}
    for model in (ELSEWHERE, HERE) * TURNS:
        with _storm(caller, model):
            times[model] += _beat(nodes)
    return _percentiles(times[ELSEWHERE]), _percentiles(times[HERE])


def _beat(nodes: Sequence[BackendNode]) -> list[float]:
    times, ends = [], time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < ends:
        now, free = datetime.now(UTC), time.monotonic_ns() % 2**33
        report = HeartbeatReport(available_vram=free)
        beating.record([Beat(node_id=one.pk, received_at=now, report=report) for one in nodes])
        times.append(1000 * (time.perf_counter() - began))
    return times


def _over_http(nodes: Sequence[BackendNode], secret: str) -> None:
    """The door answers from memory and writes later: here it is the process that is shared."""
    user = User.objects.create_superuser("bench")
    token = tokens.issue(user, name="bench", now=datetime.now(UTC))[1]
    body = json.dumps({"available_vram": 2**34}).encode()
    beats = [
        request("POST", f"/api/node/{one.pk}/heartbeat", token=secret, body=body) for one in nodes
    ]
    picks = [request("POST", "/api/route", token=token, body=b'{"model": "here", "ttl": 1}')]
    with web() as server:
        others: tuple[list[bytes], ...] = (
            [],
            [request("GET", "/healthz")] * CALLERS,
            picks * CALLERS,
        )
        storms = [(Storm(server.port), crowd) for crowd in others]
        for storm, crowd in storms * TURNS:
            _beaten(server, storm, beats, crowd)
    alone, bare, beside = ((one.percentile(0.5), one.percentile(0.99)) for one, _ in storms)
    print(f"\n{PER_SECOND} beats a second over HTTP, {CALLERS} callers of the same web process")
    harness.table(
        ("", "p50 ms", "p99 ms", "picks / bare answers"),
        [
            ("alone", *alone, ""),
            ("beside bare answers", *bare, ""),
            ("beside picks", *beside, _ratio(beside, bare)),
        ],
    )


def _beaten(server: Web, beaten: Storm, beats: Sequence[bytes], others: Sequence[bytes]) -> None:
    crowd = Storm(server.port)

    async def together() -> None:
        asked = [beaten.run(beats, connections=4, seconds=SECONDS, per_second=PER_SECOND)]
        if others:
            asked.append(crowd.run(others, connections=len(others), seconds=SECONDS))
        await asyncio.gather(*asked)

    asyncio.run(together())
    assert {*beaten.statuses, *crowd.statuses} == {200}, (beaten.statuses, crowd.statuses)


@contextmanager
def _storm(caller: Caller, model: str) -> Iterator[None]:
    """Callers in a process of their own: what measures shares no interpreter with them."""
    connection.close()
    # A fork must not share a conversation; the stubs know no pools
    connection.close_pool()  # type: ignore[attr-defined]
    context = multiprocessing.get_context("fork")
    begun, over = context.Event(), context.Event()
    process = context.Process(target=_call, args=(caller, model, begun, over), daemon=True)
    process.start()
    try:
        assert begun.wait(20)
        yield
    finally:
        over.set()
        process.join(20)


def _call(caller: Caller, model: str, begun: Event, over: Event) -> None:
    threads = [threading.Thread(target=caller, args=(model, over)) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()


def _ours(model: str, over: Event) -> None:
    while not over.is_set():
        lease = ROUTER.acquire(Ask(model=model, holder="bench", ttl=TTL))
        assert lease is not None
        ROUTER.release(lease.id)


def _localai(model: str, over: Event) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as bare:
        while not over.is_set():
            with bare.transaction():
                row = bare.execute(PICK, {"model": model}).fetchone()
                assert row is not None
                bare.execute(COUNT, {"id": row[0], "more": 1})
            bare.execute(COUNT, {"id": row[0], "more": -1})


PICK = """
SELECT replica.id
  FROM nodes_nodemodel replica JOIN nodes_backendnode node ON node.id = replica.node_id
 WHERE replica.model_name = %(model)s AND replica.state = 'loaded' AND node.liveness = 'healthy'
 ORDER BY replica.in_flight, replica.last_used, node.available_vram DESC, replica.id
 LIMIT 1 FOR UPDATE
"""
COUNT = """
UPDATE nodes_nodemodel SET in_flight = in_flight + %(more)s, last_used = now() WHERE id = %(id)s
"""
ROUTER = Router(clock=lambda: datetime.now(UTC), prefixes=prefixing.default())


def _replicas(model: str, nodes: Sequence[BackendNode]) -> None:
    now = datetime.now(UTC)
    stamps: dict[str, Any] = {"last_used": now, "created_at": now, "updated_at": now}
    NodeModel.objects.bulk_create(
        NodeModel(
            node=node,
            model_name=model,
            address="10.0.0.1:50052",
            state=ReplicaState.LOADED,
            **stamps,
        )
        for node in nodes
    )


def _percentiles(times: Sequence[float]) -> Figures:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def _ratio(ours: Figures, theirs: Figures) -> str:
    p50, p99 = (one / other for one, other in zip(ours, theirs, strict=True))
    return f"{p50:.2f}x, p99 {p99:.2f}x"
