"""A NATS server of a test's own: it can be stopped, and asked who is connected."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Self

from clustermgr.conf import ClusterSettings
from clustermgr.embedded.nats import Nats, Tls
from clustermgr.lib.natsauth.keyring import Keyring
from tests.services import free_port, until


class Server:
    """With `keys` in operator mode. `changes` replace keys of the configuration."""

    def __init__(
        self,
        home: Path,
        *,
        keys: Keyring | None = None,
        encrypted: Tls | None = None,
        **changes: Any,
    ) -> None:
        password = "" if keys else "pass/w@rd"
        place: dict[str, Any] = {"home": home, "host": "127.0.0.1", "port": free_port()}
        self.nats = Nats(**place, keys=keys, tls=encrypted, password=password)
        self.nats.configure()
        self._monitor = f"127.0.0.1:{free_port()}"
        path = home / "nats.conf"
        document = json.loads(path.read_text()) | {"http": self._monitor} | changes
        path.write_text(json.dumps(document))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.nats.url.replace("pass/w@rd", "pass%2Fw%40rd")

    @property
    def settings(self) -> ClusterSettings:
        """What a manager of this server is configured with."""
        given = self.nats.keys.settings() if self.nats.keys else {}
        return ClusterSettings.from_env({"CLUSTER_NATS_URL": self.url, **given})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        log = (self.nats.home / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(self.nats.command(), stdout=log, stderr=log)
        until(self.nats.ready)

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def connections(self) -> list[dict[str, Any]]:
        """What the server knows about the connections that a bus made."""
        return [row for row in self._known() if row.get("name", "").startswith("clustermgr-")]

    def users(self) -> set[str]:
        """The public keys of everybody who is connected."""
        return {row["authorized_user"] for row in self._known() if "authorized_user" in row}

    def _known(self) -> list[dict[str, Any]]:
        url = f"http://{self._monitor}/connz?subs=true&auth=true"
        with urllib.request.urlopen(url, timeout=60) as response:
            known: list[dict[str, Any]] = json.load(response)["connections"]
        return known
