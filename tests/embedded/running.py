"""A real `manage.py up` in a directory of its own, driven as an operator would drive it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.services import ENVIRONMENT, free_port, until

ROOT = Path(__file__).resolve().parent.parent.parent
# What the test run itself set; a supervisor under test starts from a clean slate.
OURS = {*ENVIRONMENT, "DATABASE_URL", "CELERY_BROKER_URL", "CLUSTER_NATS_URL"}


class Up:
    """One supervisor and everything below it."""

    def __init__(self, data_dir: Path, **env: str) -> None:
        self.data_dir = data_dir
        clean = {name: value for name, value in os.environ.items() if name not in OURS}
        clean.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self.env = {
            **clean,
            "CLUSTER_DATA_DIR": str(data_dir),
            "CLUSTER_HTTP_PORT": str(free_port()),
            "CLUSTER_NATS_PORT": str(free_port()),
            "CLUSTER_DEMO_WORKERS": "0",
            "CLUSTER_PULSE_EVERY": "1",
            **env,
        }
        self.log = data_dir.parent / f"{data_dir.name}.log"

    def start(self, **identity: Any) -> "Up":
        self.begin(**identity)
        until(lambda: self.announced() or self.process.poll() is not None, seconds=180)
        assert self.announced(), self.log.read_text()
        return self

    def begin(self, **identity: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=ROOT,
            env=self.env,
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **identity,
        )

    def announced(self) -> bool:
        return (self.data_dir / "run.json").exists()

    def run(self) -> dict[str, str]:
        facts: dict[str, str] = json.loads((self.data_dir / "run.json").read_text())
        return facts

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, name: str) -> psutil.Process:
        return next(p for p in self.family() if name in command_of(p).partition(" -")[0])

    def ours(self) -> list[psutil.Process]:
        """The long-lived Python processes: web, Celery, beat."""
        return [process for process in self.family() if "-m " in command_of(process)]

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        request = urllib.request.Request(self.run()["url"] + path)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def post(self, path: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.run()["url"] + path,
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def readiness(self) -> tuple[int, dict[str, Any]]:
        code, body = self.get("/readyz")
        return code, json.loads(body)["checks"]


@contextmanager
def simulated(up: Up, nodes: int, *options: str) -> Iterator[None]:
    """So many simulated machines that join `up`."""
    facts = up.run()
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.fleet", "--nodes", str(nodes), *options],
        cwd=ROOT,
        env={
            **up.env,
            "LOCALAI_REGISTER_TO": facts["url"],
            "LOCALAI_REGISTRATION_TOKEN": facts["registration_token"],
            "LOCALAI_NATS_URL": facts["nats_url"],
        },
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def command_of(process: psutil.Process) -> str:
    """Its command line; nothing when it ended while we looked."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def all_gone(processes: list[psutil.Process]) -> bool:
    return not any(_runs(process) for process in processes)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two looks
        return False
