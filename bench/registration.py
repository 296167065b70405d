"""A registration storm: a thousand machines come back from a power cut at once."""

import asyncio
import json
import time
from datetime import UTC, datetime

from bench import harness
from bench.server import Storm, request, web
from clustermgr import bootstrap
from nodes.models import BackendNode
from nodes.services import jointokens

NODES = 1000
CONNECTIONS = 64


def run() -> None:
    bootstrap.install_broker()  # a doorbell that cannot be rung takes longer than one that can
    _, secret = jointokens.issue("bench", by="bench", now=datetime.now(UTC))
    messages = [registration(number, secret) for number in range(NODES)]
    bare = [request("GET", "/admin/login/")] * NODES
    with web() as server:
        rows = []
        cases = [("a Django page (baseline)", bare), ("first", messages), ("again", messages)]
        for case, storm_of in cases:
            storm, began = Storm(server.port), time.perf_counter()
            asyncio.run(storm.run(storm_of, connections=CONNECTIONS))
            elapsed = time.perf_counter() - began
            failed = sum(n for status, n in storm.statuses.items() if status >= 500)
            rows.append((case, elapsed, NODES / elapsed, storm.percentile(0.99), failed))
        baseline = rows[0][1]
        print(f"{NODES} requests over {CONNECTIONS} connections")
        harness.table(
            ("", "seconds", "per second", "p99 ms", "5xx", "times the baseline"),
            [(*row, f"{row[1] / baseline:.1f}x") for row in rows],
        )
    assert BackendNode.objects.count() == NODES


def registration(number: int, secret: str) -> bytes:
    body = {
        "name": f"node-{number:04}",
        "address": f"10.0.0.1:{10_000 + number}",
        "http_address": "10.0.0.1:50050",
        "token": secret,
        "total_vram": 24 * 2**30,
        "available_vram": 24 * 2**30,
        "gpu_vendor": "nvidia",
        "max_replicas_per_model": 1,
        "labels": {"node.replica-slots": "1", "rack": str(number % 20)},
    }
    return request("POST", "/api/node/register", token=secret, body=json.dumps(body).encode())
