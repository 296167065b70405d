"""The story of a model's life on three real machines; and our own executor killed in each phase."""

import threading
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tests.embedded.living import NOTING, TICKS, Cluster, kill
from tests.embedded.running import Up
from tests.services import until

pytestmark = pytest.mark.timeout(600)

MIB = 2**20
LOCK = 4242  # of the phase in which an executor is held
HOLD = f"""
    CREATE FUNCTION hold_job() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}); RETURN NEW; END $$
"""
HELD_AT = """
    CREATE TRIGGER hold_job BEFORE UPDATE OF state ON scheduling_loadjob FOR EACH ROW
      WHEN (OLD.state = '{phase}' AND NEW.state <> OLD.state) EXECUTE FUNCTION hold_job()
"""
WAITING = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted
"""
UNLOADED = "SELECT count(*) FROM nodes_clusterevent WHERE after ->> 'cause' = %s"
ACTIVE = "('pending', 'installing', 'staging', 'loading')"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("living")
    knobs = {f"CLUSTER_{name}": str(value) for name, value in TICKS.items()}
    up = Up(home / "data", CLUSTER_AUTO_APPROVE_NODES="true", **knobs).start()
    made = Cluster(up=up)
    try:
        for number in range(3):
            made.join(home / f"machine-{number}", WORKER_PRETEND_VRAM="400MiB")
        made.rows(NOTING)
        yield made
    finally:
        made.leave()


def define(
    cluster: Cluster, name: str, *knobs: str, vram: int, memory: int = 0, **rule: int
) -> None:
    options = {"ContextSize": 512, "Options": [f"memory_bytes:{memory}", *knobs]}
    body = {"name": name, "backend": "reference", "options": options, "vram": vram}
    cluster.ask("POST", "/api/models", body)
    if rule:
        cluster.ask("POST", "/api/nodes/scheduling", {"model_name": name, **rule})


def test_a_models_life(cluster: Cluster) -> None:
    define(cluster, "llama", vram=150 * MIB, memory=90 * MIB, min_replicas=2)
    first = cluster.comes_to("llama", 2)
    assert len({one.node for one in first}) == 2

    # A backend process is killed
    with cluster.replaced_within(2, first[0]):
        cluster.kill_backend(first[0])
    second = cluster.comes_to("llama", 2, without={first[0].id})

    # A worker is killed, and its machine starts it again; its backends die with it
    victim = cluster.machines[second[0].node]
    with cluster.replaced_within(2, second[0]):
        victim.kill()
        victim.start()
    third = cluster.comes_to("llama", 2, without={second[0].id})

    # A whole machine is gone
    lost = third[0]
    with cluster.replaced_within(2, lost):
        kill(cluster.machines[lost.node])
    fourth = cluster.comes_to("llama", 2, without={lost.id})
    assert lost.node not in {one.node for one in fourth}
    cluster.machines[lost.node].start()
    until(lambda: cluster.status(lost.node) == "healthy", seconds=180)
    until(lambda: cluster.backends() == 2, seconds=180)  # nothing was loaded twice

    # The model is edited, and as many serve as before at every moment
    with cluster.watched("llama") as seen:
        options = {"ContextSize": 1024, "Options": [f"memory_bytes:{90 * MIB}"]}
        edit = {"options": options, "cutover": "rolling"}
        edited = cluster.ask("PATCH", "/api/models/llama", edit)
        assert (edited["outdated"], edited["actual"]) == (2, 2)
        fifth = cluster.comes_to("llama", 2, without={one.id for one in fourth})
        until(lambda: not cluster.ask("GET", "/api/models/llama")["rolling_since"], seconds=180)
    assert {one.revision for one in fifth} == {edited["config_revision"]}
    assert min(seen) >= 2

    # A node is drained under load: replaced first, then no new requests, and the last one ends
    leases = [cluster.ask("POST", "/api/route", {"model": "llama"}) for _ in fifth]
    assert {lease["replica"]["id"] for lease in leases} == {str(one.id) for one in fifth}
    cluster.ask("DELETE", f"/api/route/{leases[1]['lease_id']}")
    busy = next(one for one in fifth if str(one.id) == leases[0]["replica"]["id"])
    node = f"/api/nodes/{cluster.id_of(busy.node)}"
    with cluster.watched("llama") as seen:
        cluster.ask("POST", f"{node}/drain", {})
        cluster.comes_to("llama", 2, without={busy.id})
    assert min(seen) >= 2
    state = cluster.rows("SELECT state FROM nodes_nodemodel WHERE id = %s", busy.id)
    assert state == [("loaded",)]
    assert cluster.backends() == 3
    cluster.ask("DELETE", f"/api/route/{leases[0]['lease_id']}")
    until(lambda: cluster.ask("GET", node)["drained_at"] is not None, seconds=180)
    assert cluster.backends() == 2

    # Its worker is told to exit, and does; started again it is drained still, and not told again
    machine = cluster.machines[busy.node]
    cluster.ask("POST", f"{node}/stop-worker", {})
    until(lambda: not machine.alive(), seconds=180)
    until(lambda: cluster.ask("GET", node)["left_at"] is not None, seconds=180)
    machine.start()
    until(lambda: cluster.status(busy.node) == "healthy", seconds=180)
    known = cluster.ask("GET", node)
    assert (known["status"], known["stop_ordered_at"]) == ("draining", None)
    cluster.ask("POST", f"{node}/resume", {})

    # One more than the minimum goes when nobody uses it
    assert cluster.rows(UNLOADED, "idle") == [(0,)]
    cluster.ask("POST", "/api/models/llama/load", {"node": busy.node})
    until(lambda: cluster.rows(UNLOADED, "idle") == [(1,)], seconds=180)
    cluster.comes_to("llama", 2)

    # Another model needs most of a machine: only the one above the minimum has to go
    wanted = {"model_name": "llama", "min_replicas": 3}
    cluster.ask("POST", "/api/nodes/scheduling", wanted)
    cluster.comes_to("llama", 3)
    later = "UPDATE nodes_nodemodel SET last_used = now() + interval '1 hour'"
    cluster.rows(later)  # they are used, so that none goes for being idle
    cluster.ask("POST", "/api/nodes/scheduling", {**wanted, "min_replicas": 2})
    held = "SELECT count(*) FROM nodes_backendnode WHERE available_vram > %s"
    until(lambda: cluster.rows(held, 300 * MIB) == [(0,)], seconds=180)
    with cluster.watched("llama") as seen:
        define(cluster, "qwen", vram=300 * MIB, min_replicas=1)
        cluster.comes_to("qwen", 1)
    assert min(seen) == 2
    assert cluster.rows(UNLOADED, "evicted") == [(1,)]
    cluster.ask("DELETE", "/api/models/qwen?force=true")
    cluster.ask("DELETE", "/api/models/llama?force=true")
    until(lambda: cluster.backends() == 0, seconds=180)


@dataclass
class Callers:
    """Programs that lease, use and give back without a pause, until they are told to stop."""

    cluster: Cluster
    model: str
    served: int = 0
    complaints: int = 0  # each of them brought another lease, which was good
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.is_set():
            lease = self.lease()
            if not self.cluster.speak(lease["address"]):
                lease = self.complain(lease)
                assert self.cluster.speak(lease["address"])
                self.complaints += 1
            self.cluster.ask("DELETE", f"/api/route/{lease['lease_id']}")
            self.served += 1

    def lease(self) -> Any:
        return self.cluster.ask("POST", "/api/route", {"model": self.model})

    def complain(self, lease: Any) -> Any:
        path = f"/api/route/{lease['lease_id']}/failure"
        try:
            return self.cluster.ask("POST", path, {"kind": "unreachable"})["lease"]
        except urllib.error.HTTPError as refusal:
            if refusal.code != 404:
                raise
            return self.lease()  # the replica is known to be gone, and its leases with it


def test_a_replica_that_dies_under_load_costs_its_callers_a_second_lease_and_nobody_else_anything(
    cluster: Cluster,
) -> None:
    knobs = {"min_replicas": 2, "max_replicas": 2}
    define(cluster, "yi", "predict_seconds:0.3", vram=10 * MIB, **knobs)
    victim, other = cluster.comes_to("yi", 2)
    callers = Callers(cluster, "yi")
    held = [callers.lease() for _ in range(2)]  # one each, and they are not given back
    assert {lease["replica"]["id"] for lease in held} == {str(victim.id), str(other.id)}
    with ThreadPoolExecutor(4) as crowd:
        running = [crowd.submit(callers.run) for _ in range(4)]
        until(lambda: callers.served >= 8 or any(one.done() for one in running), seconds=180)
        with cluster.replaced_within(2, victim):
            cluster.kill_backend(victim)
        until(lambda: callers.complaints > 0 or any(one.done() for one in running), seconds=180)
        restored = cluster.comes_to("yi", 2, without={victim.id})
        callers.over.set()
    assert [one.result() for one in running] == [None] * 4
    assert other in restored
    left = cluster.rows(
        "SELECT id, in_flight FROM nodes_nodemodel WHERE id = ANY(%s)", [victim.id, other.id]
    )
    assert left == [(other.id, 1)]  # the lease that is still held
    cluster.ask("DELETE", "/api/models/yi?force=true")
    until(lambda: cluster.backends() == 0, seconds=180)


@contextmanager
def held_in(cluster: Cluster, phase: str) -> Iterator[None]:
    """Whoever wants to leave that phase waits, in the middle of his transaction."""
    with psycopg.connect(cluster.up.run()["database_url"], autocommit=True) as link:
        link.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        link.execute(HELD_AT.format(phase=phase))
        try:
            yield
        finally:
            link.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
            link.execute("DROP TRIGGER hold_job ON scheduling_loadjob")


@pytest.mark.parametrize("phase", ["pending", "installing", "staging", "loading"])
def test_an_executor_that_is_killed_wedges_leaks_and_doubles_nothing(
    cluster: Cluster, phase: str
) -> None:
    cluster.rows(HOLD.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
    name = f"phi-{phase}"
    define(cluster, name, vram=10 * MIB)
    with held_in(cluster, phase):
        job = cluster.ask("POST", f"/api/models/{name}/load", {})
        until(lambda: cluster.rows(WAITING, LOCK) != [(0,)], seconds=180)
        state = cluster.rows("SELECT state FROM scheduling_loadjob WHERE id = %s", job["id"])
        assert state == [(phase,)]
        cluster.kill_part("-Q nodeops")
    cluster.comes_to(name, 1)
    assert cluster.backends() == 1
    known = cluster.rows(f"SELECT state FROM scheduling_loadjob WHERE model_name = '{name}'")  # noqa: S608 -- ours
    assert known == [("loaded",)]
    assert cluster.rows(f"SELECT 1 FROM scheduling_loadjob WHERE state IN {ACTIVE}") == []  # noqa: S608 -- ours
    coming = "SELECT 1 FROM nodes_nodemodel WHERE state IN ('staging', 'loading')"
    assert cluster.rows(coming) == []
    reserved = "SELECT sum(reserved_vram)::int FROM nodes_backendnode"
    until(lambda: cluster.rows(reserved) == [(0,)], seconds=180)
    cluster.ask("DELETE", f"/api/models/{name}?force=true")
    until(lambda: cluster.backends() == 0, seconds=180)
