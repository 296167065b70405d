"""Our own worker as a real process, when no other was named; and a NATS server for it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from clustermgr.embedded.ports import free_ports, is_free

ROOT = Path(__file__).resolve().parent.parent.parent


def until(condition: Callable[[], bool], *, seconds: float = 100.0) -> None:
    """Wait for a fact, as briefly as it lets us; fail loudly when it never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not come true within {seconds} s")
        time.sleep(0.05)


class NatsServer:
    """Without a password: who may say what is another suite's business."""

    def __init__(self) -> None:
        self.port = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        beside = Path(sys.executable).with_name("nats-server")
        program = str(beside) if beside.exists() else shutil.which("nats-server") or "nats-server"
        command = [program, "-a", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: not is_free(self.port))

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(60)
            self._process = None


class OurWorker:
    """`python -m worker`, with everything it keeps below `home`."""

    def __init__(self, home: Path, *, url: str, nats: str, token: str, **more: str) -> None:
        self.home = home
        self.base = free_ports(200)
        self.token = token
        self.log = home / "worker.log"
        self.name = f"contract-{self.base}"
        self.http = f"127.0.0.1:{self.base}"
        clean = {name: value for name, value in os.environ.items() if "LOCALAI" not in name}
        self._env = {
            **clean,
            "LOCALAI_REGISTER_TO": url,
            "LOCALAI_NATS_URL": nats,
            "LOCALAI_REGISTRATION_TOKEN": token,
            "LOCALAI_NODE_NAME": self.name,
            # The host is a name on purpose: what is advertised differs from the loopback address
            "LOCALAI_ADDR": f"localhost:{self.base + 1}",
            "LOCALAI_GRPC_MAX_PORT": str(self.base + 199),
            "LOCALAI_MAX_REPLICAS_PER_MODEL": "4",
            "LOCALAI_HEARTBEAT_INTERVAL": "1s",
            "LOCALAI_NODE_LABELS": "rack=9",
            "WORKER_STATE_DIR": str(home),
            **more,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "worker"],
                cwd=ROOT,
                env=self._env,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def family(self) -> list[psutil.Process]:
        """Its backends and whatever they started."""
        return psutil.Process(self.pid).children(recursive=True)

    def terminate(self, *, within: float = 90.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


@contextmanager
def running(worker: OurWorker) -> Iterator[OurWorker]:
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()
