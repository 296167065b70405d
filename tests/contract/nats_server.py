"""A NATS server of a test's own: it can be stopped, and asked who is connected."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Self

from clustermgr.conf import ClusterSettings
from clustermgr.embedded.nats import Nats
from tests.services import free_port, until


class Server:
    """`changes` replace keys of the configuration; None takes a key out."""

    def __init__(self, home: Path, **changes: Any) -> None:
        self.nats = Nats(home=home, host="127.0.0.1", port=free_port(), password="pass/w@rd")
        self.nats.configure()
        self._monitor = f"127.0.0.1:{free_port()}"
        path = home / "nats.conf"
        document = json.loads(path.read_text()) | {"http": self._monitor} | changes
        path.write_text(json.dumps({key: value for key, value in document.items() if value}))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://clustermgr:pass%2Fw%40rd@127.0.0.1:{self.nats.port}"

    @property
    def settings(self) -> ClusterSettings:
        return ClusterSettings(nats_url=self.url)

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
            self._process.wait(10)
            self._process = None

    def connections(self) -> list[dict[str, Any]]:
        """What the server knows about the connections that a bus made."""
        url = f"http://{self._monitor}/connz?subs=true"
        with urllib.request.urlopen(url, timeout=5) as response:
            known = json.load(response)["connections"]
        return [row for row in known if row.get("name", "").startswith("clustermgr-")]
