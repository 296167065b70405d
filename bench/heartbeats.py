"""Heartbeats through the real server and PostgreSQL, against a bare answer of the same server."""

import asyncio
import json
import time
from datetime import UTC, datetime

from bench import harness
from bench.fleet import make_nodes
from bench.server import Storm, Web, request, web
from nodes.models import BackendNode
from nodes.services import jointokens

NODES = 10_000
EVERY = 10  # seconds between two beats of a node
CONNECTIONS = 32
SECONDS = 8.0
BODY = json.dumps(
    {"available_vram": 20 * 2**30, "available_ram": 2**34, "total_disk": 2**40, "available_disk": 7}
).encode()


def run() -> None:
    secret = _fleet()
    ids = BackendNode.objects.values_list("pk", flat=True)
    beats = [request("POST", f"/api/node/{pk}/heartbeat", token=secret, body=BODY) for pk in ids]
    bare = [request("GET", "/healthz")] * CONNECTIONS
    with web() as server:
        asyncio.run(Storm(server.port).run(beats, connections=CONNECTIONS))  # every node is known
        view = _fast_as_possible(server, [request("GET", "/")] * CONNECTIONS, status=302)
        ceiling = _fast_as_possible(server, bare)
        ours = _fast_as_possible(server, beats)
        print(f"as fast as possible, {CONNECTIONS} connections, {SECONDS:.0f} s each")
        harness.table(
            ("", "per second", "p99 ms", "baseline / ours"),
            [
                ("a bare Django view (baseline)", *view, f"{view[0] / ours[0]:.2f}x"),
                ("an answer without Django (baseline)", *ceiling, f"{ceiling[0] / ours[0]:.2f}x"),
                ("heartbeat", *ours, ""),
            ],
        )
        _steady(server, beats)


def _fleet() -> str:
    token, secret = jointokens.issue("bench", by="bench", now=datetime.now(UTC))
    make_nodes(range(NODES), join_token=token)
    return secret


def _fast_as_possible(
    server: Web, messages: list[bytes], *, status: int = 200
) -> tuple[float, float]:
    storm = Storm(server.port)
    rate = asyncio.run(storm.run(messages, connections=CONNECTIONS, seconds=SECONDS))
    assert set(storm.statuses) == {status}, storm.statuses
    return rate, storm.percentile(0.99)


def _steady(server: Web, beats: list[bytes]) -> None:
    """The load of the whole fleet, for as long as it takes each node to beat twice."""
    storm, began, used = Storm(server.port), time.perf_counter(), server.cpu_seconds()
    rate = NODES / EVERY
    asyncio.run(storm.run(beats, connections=64, seconds=2 * EVERY, per_second=rate))
    elapsed = time.perf_counter() - began
    share = 100 * (server.cpu_seconds() - used) / elapsed
    stale = BackendNode.objects.filter(available_disk=0).count()
    print(
        f"\n{NODES} nodes every {EVERY} s: {sum(storm.statuses.values()) / elapsed:.0f} beats/s, "
        f"{share:.0f} % of one core for web and PostgreSQL, "
        f"p99 {storm.percentile(0.99):.1f} ms, {stale} nodes without a stored beat"
    )
