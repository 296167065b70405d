import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus, exchange
from tests.contract.nats_server import Server


@pytest.fixture
def bus() -> Iterator[NatsBus]:
    bus = NatsBus(settings.CLUSTER)
    yield bus
    bus.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd on a busy machine is confirmed late, which is not what its tests are about."""
    monkeypatch.setattr(exchange, "PATIENCE", 60.0)


@pytest.fixture
def subject() -> str:
    # The session's server is shared by all workers of xdist: nobody else may listen here.
    return f"test.{uuid.uuid4().hex}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as server:
        yield server


@pytest.fixture
def own_bus(server: Server) -> Iterator[NatsBus]:
    bus = NatsBus(server.settings)
    yield bus
    bus.close()
