"""Everything of ours is killed at random while a fleet installs and upgrades: row 85.

`CHAOS_SECONDS=180 CHAOS_SEED=7 pytest tests/embedded/test_chaos.py` is the long version.
"""

import http.client
import json
import os
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from tests.embedded.running import Up, command_of, simulated
from tests.services import until

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NODES = 50
LINK = ("--backend-size", "4000000", "--link-speed", "2500000")  # an install takes 2 s or so
FIRST = ("alpha", "beta")  # installed in peace, upgraded in chaos
SECOND = ("gamma", "delta")  # installed in chaos
VERBS = ("upgrade", "upgrade", "install", "install")
LAST = "omega"  # installed in peace again
BREATH = 15.0  # seconds
PARTS = {
    "web": "uvicorn",
    "ticks": "-Q ticks",
    "nodeops": "-Q nodeops",
    "beat": " beat ",
    "nats": "nats-server",
    "broker": "bin/postgres -D",  # pgmq's, and the only truth: both are gone at once
}
LEFT = """
SELECT op.id, op.state, op.verb, node.liveness, op.attempts, op.due_at - now(), op.last_error
  FROM backendops_pendingbackendop op JOIN nodes_backendnode node ON node.id = op.node_id
 WHERE op.state <> 'succeeded' ORDER BY op.id LIMIT 10
"""
ATTEMPTS = """
    SELECT node_id, sum(generation)::int FROM backendops_pendingbackendop GROUP BY node_id
"""
ENDED = "SELECT count(*) FROM backendops_pendingbackendop WHERE finished_at <= '{}'"
STUCK = """
    SELECT count(*) FROM backendops_pendingbackendop
     WHERE (state = 'running' AND lease_until IS NULL)
        OR (state IN ('queued', 'failed', 'unconfirmed', 'cancelling') AND due_at IS NULL)
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    knobs = {"OPS_EVERY": 2, "OPS_REAP_EVERY": 2, "OPS_CHECK_EVERY": 2, "OP_LEASE": 8}
    env = {f"CLUSTER_{name}": str(value) for name, value in knobs.items()}
    up = Up(tmp_path / "data", CLUSTER_AUTO_APPROVE_NODES="true", **env).start()
    yield up
    up.stop()


def order(up: Up, verb: str, backend: str, *nodes: UUID) -> None:
    """Ask for it again and again until the web part has it: a key makes it once."""
    facts = up.run()
    where = {"nodes": [str(node) for node in nodes]} if nodes else {"all": True}
    request = urllib.request.Request(
        f"{facts['url']}/api/operations",
        json.dumps({"verb": verb, "backend": backend, **where}).encode(),
        {
            "Authorization": f"Bearer {facts['api_token']}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"{verb} {backend} {nodes}",
        },
    )

    def accepted() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return bool(reply.status == 202)
        except (OSError, http.client.HTTPException):  # killed before, or while it answered
            return False

    until(accepted, seconds=SECONDS + 120)


def rows(up: Up, statement: str) -> list[tuple[Any, ...]] | None:
    """What PostgreSQL says; None while it is away."""
    try:
        with psycopg.connect(up.run()["database_url"], connect_timeout=5) as link:
            return link.execute(statement).fetchall()
    except psycopg.OperationalError:
        return None


def states(up: Up) -> dict[str, int] | None:
    told = rows(up, "SELECT state, count(*) FROM backendops_pendingbackendop GROUP BY state")
    return None if told is None else dict(told)


def fetched(up: Up, nodes: Sequence[UUID]) -> dict[UUID, int]:
    """How often each node has fetched something, by its own word: a fetch makes a new version."""
    facts = up.run()
    us = ClusterSettings(nats_url=facts["nats_url"], nats_credentials=facts["nats_credentials"])
    bus = NatsBus(us)
    gateway = NodeGateway(bus, cluster=us)
    told = {node: gateway.list_backends(node) for node in nodes}
    bus.close()
    return {node: max(int(has.version.split(".")[1]) for has in told[node]) for node in nodes}


def kill(up: Up, part: str) -> bool:
    """Kill all of it with -9; False when it was dead already."""
    alive = [one for one in up.family() if PARTS[part] in f"{command_of(one)} "]
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(alive)


def succeed(up: Up, number: int, *, seconds: float) -> None:
    """Wait until so many ops have succeeded and there is no other; say what is in the way."""
    try:
        until(lambda: states(up) == {"succeeded": number}, seconds=seconds)
    except AssertionError as late:
        raise AssertionError(f"{states(up)} after {seconds} s; {rows(up, LEFT)}") from late


def deck(chance: random.Random) -> Iterator[str]:
    """All parts in a new order again and again, so that also a short chaos kills each of them."""
    while True:
        yield from chance.sample(list(PARTS), len(PARTS))


def give_orders(up: Up, chance: random.Random, nodes: Sequence[UUID]) -> None:
    """Every wish for every node, one after the other for as long as the chaos lasts."""
    wishes = [(*wish, node) for wish in zip(VERBS, FIRST + SECOND, strict=True) for node in nodes]
    chance.shuffle(wishes)
    began = time.monotonic()
    for number, wish in enumerate(wishes):
        due = began + SECONDS * number / len(wishes)
        time.sleep(max(due - time.monotonic(), 0))  # the pace of the operator
        order(up, *wish)


def havoc(up: Up, chance: random.Random) -> Counter[str]:
    """Kill one part after the other until the time is over; how often each was."""
    ends, killed, parts = time.monotonic() + SECONDS, Counter[str](), deck(chance)
    done = 2 * NODES
    while time.monotonic() < ends or set(PARTS) - set(+killed):
        part = next(parts)
        killed[part] += kill(up, part)
        if chance.random() < 0.2:
            killed["queue"] += rows(up, "SELECT pgmq.purge_queue('nodeops')::text") is not None
        assert rows(up, STUCK) in ([(0,)], None)
        done = let_work(up, done)
        time.sleep(chance.uniform(0, 2))  # the pace of the chaos, not a wait for anything
    return killed


def let_work(up: Up, before: int) -> int:
    """Whoever is never up has nothing to lose: wait a while until more than `before` is done."""
    deadline = time.monotonic() + BREATH
    while (now := (states(up) or {}).get("succeeded", 0)) <= before and time.monotonic() < deadline:
        time.sleep(0.1)  # a poll that may end without its fact, as `until` may not
    return max(now, before)


@pytest.mark.timeout(SECONDS + 1500)
def test_row_85_whatever_is_killed_every_order_is_carried_out_exactly_once(up: Up) -> None:
    with simulated(up, NODES, *LINK), ThreadPoolExecutor() as operator:
        until(lambda: rows(up, "SELECT count(*) FROM nodes_backendnode") == [(NODES,)])
        nodes = [
            node for (node,) in rows(up, "SELECT id FROM nodes_backendnode ORDER BY name") or ()
        ]
        for backend in FIRST:
            order(up, "install", backend)
        succeed(up, 2 * NODES, seconds=300)

        given = operator.submit(give_orders, up, random.Random(SEED), nodes)
        killed = havoc(up, random.Random(SEED))
        over = datetime.now(UTC)
        given.result()
        succeed(up, 6 * NODES, seconds=600)

        # It takes as long as anything that may still be under way, so after it there is nothing
        order(up, "install", LAST)
        succeed(up, 7 * NODES, seconds=300)
        assert rows(up, STUCK) == [(0,)]
        effects = fetched(up, nodes)
        attempts = dict(rows(up, ATTEMPTS) or ())
        [(ended,)] = rows(up, ENDED.format(over)) or [(0,)]
    for node in nodes:  # fewer would be a lie, more an effect twice for one generation
        assert 7 <= effects[node] <= attempts[node]
    print(  # noqa: T201 -- with -s
        f"seed {SEED}: killed {dict(killed)}, {ended - 2 * NODES} ops done by then;"
        f" orders {7 * NODES}, attempts {sum(attempts.values())}, effects {sum(effects.values())}"
    )
