"""The manager's own gateway in front of our worker as a real process; the rest is a stage."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.outcomes import Installed
from nodes.wire import Gallery, ProcessKey
from tests.contract_worker.background import Background
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.gallery import Galleries
from tests.contract_worker.ours import NatsServer, OurWorker, until

TOKEN = "faults-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    gateway: NodeGateway
    node_id: UUID
    nats: NatsServer
    worker: OurWorker
    plane: ControlPlane
    galleries: Galleries

    def install(self, backend: str, **more: Any) -> Installed:
        return self.gateway.install(
            self.node_id, backend=backend, model_id="llama", galleries=self.index(), **more
        )

    def index(self) -> tuple[Gallery, ...]:
        return (Gallery(name="faults", url=str(self.galleries.index)),)

    def hasty(self, seconds: float) -> "Stage":
        """The same, with a manager that waits no longer than this."""
        limit = timedelta(seconds=seconds)
        cluster = replace(self.gateway.cluster, install_timeout=limit, upgrade_timeout=limit)
        return replace(self, gateway=NodeGateway(self.gateway.bus, cluster=cluster))

    def running(self) -> set[str]:
        found = self.gateway.running_models(self.node_id)
        keys = (ProcessKey(model_id=one.model_id, replica_index=one.replica_index) for one in found)
        return set(map(str, keys))

    def listens(self) -> bool:
        [answer] = self.gateway.list_backends_of([self.node_id]).values()
        return not isinstance(answer, Exception)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    nats = NatsServer()
    nats.start()
    cluster = ClusterSettings(nats_url=nats.url, install_timeout=timedelta(seconds=90))
    bus = NatsBus(cluster)
    with Background() as background:
        plane = ControlPlane(token=TOKEN)
        plane.start(background)
        home = tmp_path / "worker"
        home.mkdir()
        worker = OurWorker(home, url=plane.url, nats=nats.url, token=TOKEN)
        worker.start()
        stage = Stage(
            gateway=NodeGateway(bus, cluster=cluster),
            node_id=UUID(plane.node_id),
            nats=nats,
            worker=worker,
            plane=plane,
            galleries=Galleries(tmp_path, plane),
        )
        until(stage.listens)
        yield stage
        worker.kill()
        bus.close()
        nats.stop()
        plane.stop(background)
