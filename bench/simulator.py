"""The fleet simulator: 1,000 nodes in one process, against bare NATS connections alone."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from bench import harness
from bench.registration import CONNECTIONS, registration
from bench.server import Storm, Web, web
from clustermgr import bootstrap
from clustermgr.embedded.scratch import until
from nodes.models import BackendNode
from nodes.services import jointokens
from nodes.services.jointokens import Terms

NODES = 1000
STEADY = 30.0  # seconds


def run() -> None:
    bootstrap.install_broker()  # a doorbell that cannot be rung takes longer than one that can
    now = datetime.now(UTC)
    _, secret = jointokens.issue("bench", by="bench", now=now, terms=Terms(auto_approve=True))
    with _bare(settings.CLUSTER.nats_url) as bare:
        bare_figures = _steady(bare)
    with web() as server:
        stormed = _storm(server, secret)
        with _fleet(server, secret) as (fleet, state):
            began = time.perf_counter()
            until(lambda: _listening(state) == NODES, seconds=120)
            joined = time.perf_counter() - began
            approved = BackendNode.objects.filter(name__startswith="sim-").exclude(approved_at=None)
            assert approved.count() == NODES
            figures = _steady(fleet)
    print(
        f"{NODES} nodes; all registered, approved and listening after {joined:.1f} s (the aim is"
        f" 60), {joined / stormed:.1f}x as long as their bare registrations ({stormed:.1f} s)"
    )
    print(f"steady state over {STEADY:.0f} s; the aim is 25 % of a core and 400 MB")
    harness.table(
        ("", "core %", "MB", "times bare: CPU", "memory"),
        [
            ("bare nats-py, the same subscriptions", *bare_figures, "1.0x", "1.0x"),
            (
                "simulator, with heartbeats",
                *figures,
                f"{figures[0] / bare_figures[0]:.1f}x",
                f"{figures[1] / bare_figures[1]:.1f}x",
            ),
        ],
    )


def _steady(process: psutil.Process) -> tuple[float, float]:
    """Percent of a core and megabytes, over some seconds in which nobody asks for anything."""
    before = sum(process.cpu_times()[:2])
    time.sleep(STEADY)
    spent = sum(process.cpu_times()[:2]) - before
    return 100 * spent / STEADY, process.memory_full_info().uss / 1e6


def _storm(server: Web, secret: str) -> float:
    """Seconds for as many registrations and nothing else, as fast as the manager takes them."""
    messages = [registration(number, secret) for number in range(NODES)]
    began = time.perf_counter()
    asyncio.run(Storm(server.port).run(messages, connections=CONNECTIONS))
    return time.perf_counter() - began


@contextmanager
def _fleet(server: Web, secret: str) -> Iterator[tuple[psutil.Process, Path]]:
    with tempfile.TemporaryDirectory() as home:
        state = Path(home) / "fleet.json"
        command = [sys.executable, "-m", "worker.fleet", "--nodes", str(NODES)]
        env = {
            **os.environ,
            "LOCALAI_REGISTER_TO": f"http://localhost:{server.port}",
            "LOCALAI_NATS_URL": settings.CLUSTER.nats_url,
            "LOCALAI_REGISTRATION_TOKEN": secret,
        }
        process = subprocess.Popen([*command, "--state-file", str(state)], env=env)
        try:
            until(state.exists)
            yield psutil.Process(process.pid), state
        finally:
            process.terminate()
            process.wait(30)


def _listening(state: Path) -> int:
    where: dict[str, Any] = json.loads(state.read_text())
    request = urllib.request.Request(f"{where['url']}/nodes")
    request.add_header("Authorization", f"Bearer {where['token']}")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return sum(node["listening"] for node in json.load(reply))


@contextmanager
def _bare(url: str) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "bench.ears", str(NODES)]
    env = {**os.environ, "LOCALAI_NATS_URL": url}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    try:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise RuntimeError("the bare process did not start")
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
