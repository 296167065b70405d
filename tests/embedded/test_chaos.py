"""Everything of ours is killed at random while a fleet installs and upgrades.

`CHAOS_SECONDS=180 CHAOS_SEED=7 pytest tests/embedded/test_chaos.py` is the long version.
"""

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.embedded.running import ROOT, Up, command_of
from tests.services import until

SECONDS = float(os.environ.get("CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NODES = 50
FIRST = ("alpha", "beta")  # installed in peace, upgraded in chaos
SECOND = ("gamma", "delta")  # installed in chaos
VERBS = ("upgrade", "upgrade", "install", "install")
PARTS = {
    "web": "uvicorn",
    "ticks": "-Q ticks",
    "nodeops": "-Q nodeops",
    "beat": " beat ",
    "nats": "nats-server",
}
OUTSTANDING = "('queued', 'running', 'unconfirmed', 'failed', 'cancelling')"
STUCK = """
    SELECT count(*) FROM backendops_pendingbackendop
     WHERE (state = 'running' AND lease_until IS NULL)
        OR (state IN ('queued', 'failed', 'unconfirmed', 'cancelling') AND due_at IS NULL)
"""
NEWEST = """
    SELECT newest, count(*)
      FROM (SELECT max(version) AS newest FROM backendops_nodebackend GROUP BY node_id) AS nodes
     GROUP BY newest
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    knobs = {"OPS_EVERY": 2, "OPS_REAP_EVERY": 2, "OPS_CHECK_EVERY": 2, "OP_LEASE": 8}
    env = {f"CLUSTER_{name}": str(value) for name, value in knobs.items()}
    up = Up(tmp_path / "data", CLUSTER_AUTO_APPROVE_NODES="true", **env).start()
    yield up
    up.stop()


@contextmanager
def fleet(up: Up) -> Iterator[None]:
    """Fifty machines on a link on which each install takes a second or two."""
    facts = up.run()
    command = ["--nodes", str(NODES), "--register-to", facts["url"], "--backend-size", "4000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.fleet", *command, "--link-speed", "2500000"],
        cwd=ROOT,
        env={
            **up.env,
            "LOCALAI_REGISTRATION_TOKEN": facts["registration_token"],
            "LOCALAI_NATS_URL": facts["nats_url"],
        },
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def order(up: Up, verb: str, backend: str) -> None:
    """Ask for it on all nodes, again and again until the web part has it: a key makes it once."""
    facts = up.run()
    request = urllib.request.Request(
        f"{facts['url']}/api/operations",
        json.dumps({"verb": verb, "backend": backend, "all": True}).encode(),
        {
            "Authorization": f"Bearer {facts['api_token']}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"{verb}-{backend}",
        },
    )

    def accepted() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return bool(reply.status == 202)
        except OSError:
            return False

    until(accepted, seconds=60)


def rows(up: Up, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(up.run()["database_url"]) as link:
        return link.execute(statement).fetchall()


def count(up: Up, condition: str) -> int:
    [(number,)] = rows(up, f"SELECT count(*) FROM backendops_pendingbackendop WHERE {condition}")  # noqa: S608 -- ours
    return int(number)


def settled(up: Up, ops: int) -> bool:
    return count(up, "true") == ops and not count(up, f"state IN {OUTSTANDING}")


def kill(up: Up, part: str) -> None:
    for process in up.family():
        if PARTS[part] in f"{command_of(process)} ":
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


@pytest.mark.timeout(SECONDS + 300)
def test_whatever_is_killed_every_order_is_carried_out_exactly_once(up: Up) -> None:
    chance = random.Random(SEED)
    with fleet(up):
        until(lambda: rows(up, "SELECT count(*) FROM nodes_backendnode") == [(NODES,)], seconds=60)
        for backend in FIRST:
            order(up, "install", backend)
        until(lambda: settled(up, 2 * NODES), seconds=120)

        ends = time.monotonic() + SECONDS
        for verb, backend in zip(VERBS, FIRST + SECOND, strict=True):
            order(up, verb, backend)
        while time.monotonic() < ends:
            kill(up, chance.choice(list(PARTS)))
            if chance.random() < 0.2:
                rows(up, "SELECT pgmq.purge_queue('nodeops')::text")
            assert rows(up, STUCK) == [(0,)]
            time.sleep(chance.uniform(0.5, 2))  # the pace of the chaos, not a wait for anything

        until(lambda: settled(up, 6 * NODES), seconds=180)
        assert count(up, "state = 'succeeded'") == 6 * NODES
        newest = rows(up, NEWEST)
    # A simulated node counts what it fetches: one more than the six would be an effect twice
    assert newest == [("1.6.0", NODES)]
