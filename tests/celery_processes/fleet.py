"""Real Celery processes on a database of their own, on the test run's PostgreSQL."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from clustermgr.embedded.parts import CELERY, WORKER

ROOT = Path(__file__).resolve().parent.parent.parent


class Fleet:
    """Processes that share one database and one broker."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.log = log
        self.env = {
            **os.environ,
            "DATABASE_URL": url,
            "CELERY_BROKER_URL": url.replace("postgresql://", "pgmq://"),
            "CLUSTER_PULSE_EVERY": "1",
            "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.run("manage.py", "prepare")

    def run(self, *arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=self.env, check=True)

    def worker(self, queue: str, pool: str, size: int, *extra: str) -> subprocess.Popen[bytes]:
        # A fixed name would make two workers of one test look like one to each other.
        name = f"{queue}-{secrets.token_hex(3)}@%h"
        return self._start(*WORKER, "-Q", queue, "-P", pool, "-c", str(size), "-n", name, *extra)

    def beat(self) -> subprocess.Popen[bytes]:
        return self._start("beat", "--pidfile=")

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*CELERY, *arguments], cwd=ROOT, env=self.env, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query, parameters).fetchall()

    def pulses(self) -> int:
        rows = self.rows("SELECT runs FROM clustermgr_tick WHERE name = 'clustermgr.pulse'")
        return int(rows[0][0]) if rows else 0


@contextmanager
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    server = os.environ["DATABASE_URL"]
    name = f"celery_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    crew = Fleet(server.rsplit("/", 1)[0] + f"/{name}", tmp_path / "celery.log")
    try:
        yield crew
    finally:
        for process in crew.processes:
            process.kill()
            process.wait(60)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
