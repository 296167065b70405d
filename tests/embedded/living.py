"""A whole cluster on this machine: `manage.py up` with short ticks, and real workers beside it."""

import json
import threading
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import psutil
import psycopg

from nodes import backendrpc
from tests.contract_worker.ours import OurWorker
from tests.embedded.running import Up, command_of
from tests.services import until
from worker.rpc import backend_pb2 as pb
from worker.rpc import backend_pb2_grpc
from worker.rpc.client import OPTIONS

# Seconds; what takes minutes in a cluster shall not take them here
TICKS = {
    "RECONCILE_EVERY": 2,
    "OBSERVE_EVERY": 1,
    "JOBS_REAP_EVERY": 1,
    "DRAIN_CHECK_EVERY": 1,
    "SWEEP_EVERY": 1,
    "HEARTBEAT_STALE_AFTER": 21,  # the least that is allowed
    "OFFLINE_PER_SECOND": 1,
    "FLAP_LIMIT": 100,
    "LOAD_LEASE": 6,
    "IDLE_AFTER": 4,
}
SERVING = """
    SELECT replica.id, node.name, replica.address, replica.config_revision
      FROM nodes_nodemodel replica JOIN nodes_backendnode node ON node.id = replica.node_id
     WHERE replica.model_name = %s AND replica.state = 'loaded' AND suspect_since IS NULL
       AND outdated_at IS NULL AND withdrawn_at IS NULL AND node.liveness = 'healthy'
     ORDER BY node.name, replica.replica_index
"""

# Which ticks began, and which replicas went, each with its moment
NOTING = """
    CREATE TABLE noted (what text NOT NULL, at timestamptz NOT NULL);
    CREATE FUNCTION note_tick() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO noted VALUES ('tick', NEW.started_at); RETURN NULL; END $$;
    CREATE FUNCTION note_loss() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO noted VALUES (OLD.id::text, clock_timestamp()); RETURN NULL; END $$;
    CREATE TRIGGER note_tick AFTER UPDATE OF runs ON clustermgr_tick FOR EACH ROW
      WHEN (NEW.name = 'scheduling.reconcile') EXECUTE FUNCTION note_tick();
    CREATE TRIGGER note_loss AFTER DELETE ON nodes_nodemodel FOR EACH ROW
      EXECUTE FUNCTION note_loss();
"""
# From the loss of a replica to the first load that was decided on after another one
TICKS_BETWEEN = """
    SELECT count(*) FROM noted tick, noted loss
     WHERE tick.what = 'tick' AND loss.what = %s AND tick.at > loss.at AND tick.at <=
           (SELECT created_at FROM scheduling_loadjob WHERE id > %s ORDER BY id LIMIT 1)
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A replica that a request may be sent to."""

    id: UUID
    node: str
    address: str
    revision: str


@dataclass
class Cluster:
    """The manager, and machines that can be killed."""

    up: Up
    machines: dict[str, OurWorker] = field(default_factory=dict)

    def join(self, home: Path, **more: str) -> None:
        """Start one more machine, and wait until it is let in."""
        home.mkdir()
        facts = self.up.run()
        worker = OurWorker(
            home,
            url=facts["url"],
            nats=facts["nats_url"],
            token=facts["registration_token"],
            LOCALAI_NATS_REQUIRE_AUTH="true",
            **more,
        )
        worker.start()
        self.machines[worker.name] = worker
        until(lambda: self.status(worker.name) == "healthy", seconds=180)

    def leave(self) -> None:
        for worker in self.machines.values():
            worker.kill()
        self.up.stop()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        facts = self.up.run()
        request = urllib.request.Request(
            facts["url"] + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {facts['api_token']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.up.run()["database_url"], autocommit=True) as link:
            cursor = link.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def serving(self, model: str) -> list[Served]:
        return [Served(*row) for row in self.rows(SERVING, model)]

    def comes_to(self, model: str, number: int, *, without: Collection[UUID] = ()) -> list[Served]:
        """Wait until exactly so many serve, none of them of those `without`; then who."""

        def there() -> bool:
            found = self.serving(model)
            return len(found) == number and not {one.id for one in found}.intersection(without)

        until(there, seconds=180)
        return self.serving(model)

    @contextmanager
    def replaced_within(self, ticks: int, lost: Served) -> Iterator[None]:
        """What is done meanwhile costs that replica; from there few ticks lead to a new load."""
        [(last,)] = self.rows("SELECT max(id) FROM scheduling_loadjob")
        yield
        gone, come = (
            "SELECT 1 FROM noted WHERE what = %s",
            "SELECT 1 FROM scheduling_loadjob WHERE id > %s",
        )
        until(lambda: self.rows(gone, str(lost.id)) != [], seconds=180)
        until(lambda: self.rows(come, last) != [], seconds=180)
        [(taken,)] = self.rows(TICKS_BETWEEN, str(lost.id), last)
        assert taken <= ticks + 1  # one may have looked just before the loss was committed

    def status(self, node: str) -> str:
        found = self.rows("SELECT liveness FROM nodes_backendnode WHERE name = %s", node)
        return found[0][0] if found else ""

    def id_of(self, node: str) -> UUID:
        [(found,)] = self.rows("SELECT id FROM nodes_backendnode WHERE name = %s", node)
        assert isinstance(found, UUID)
        return found

    def backends(self) -> int:
        """Backend processes that really run; each is one process, see worker/reference/run.sh."""
        return sum(len(one.family()) for one in self.machines.values() if one.alive())

    def kill_backend(self, replica: Served) -> None:
        port = int(replica.address.rpartition(":")[2])
        [process] = [
            one
            for one in self.machines[replica.node].family()
            if port in {link.laddr.port for link in one.net_connections(kind="tcp")}
        ]
        process.kill()

    def speak(self, address: str) -> bool:
        """Use a replica as callers do; False when nobody is there."""
        bearer = [("authorization", f"Bearer {self.up.run()['registration_token']}")]
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            stub = backend_pb2_grpc.BackendStub(channel)  # type: ignore[no-untyped-call]
            try:
                stub.Predict(
                    pb.PredictOptions(Prompt="Once", Tokens=3), metadata=bearer, timeout=60
                )
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
        return True

    def kill_part(self, words: str) -> None:
        """Kill a process of the manager's; its supervisor starts another."""
        for process in self.up.family():
            if words in command_of(process):
                process.kill()
                process.wait(60)

    @contextmanager
    def watched(self, model: str) -> Iterator[list[int]]:
        """How many serve, many times a second, with a port that does not refuse."""
        seen: list[int] = []
        over = threading.Event()

        def look() -> None:
            with psycopg.connect(self.up.run()["database_url"], autocommit=True) as link:
                while not over.is_set():
                    rows = link.execute(SERVING, [model]).fetchall()
                    refusing = {row[0] for row in rows if backendrpc.refuses(row[2])}
                    # Who was stopped while we asked served when we looked
                    still = {row[0] for row in link.execute(SERVING, [model])}
                    seen.append(len(rows) - len(refusing & still))
                    over.wait(0.05)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()


def kill(worker: OurWorker) -> None:
    """The machine's power fails: the worker and all its backends, at once."""
    family = worker.family()
    worker.kill()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
