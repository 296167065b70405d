from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from nodes.models import BackendNode, JoinToken
from nodes.services import logs
from tests.contract_worker.background import Background
from tests.contract_worker.bus import Bus
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.gallery import Galleries
from tests.contract_worker.ours import NatsServer, OurWorker, until
from tests.factories import NOW, make_node
from tests.logs.worker import SECRET

MODEL = "org/50% llama"

pytestmark = pytest.mark.django_db


@pytest.fixture
def printing(tmp_path: Path, environment_token: JoinToken) -> Iterator[BackendNode]:
    """A node whose worker runs a real backend for a model with an awkward name."""
    nats = NatsServer()
    nats.start()
    with Background() as background:
        plane = ControlPlane(token=SECRET)
        plane.start(background)
        galleries = Galleries(tmp_path, plane)
        galleries.add_folder("stub")
        worker = OurWorker(tmp_path, url=plane.url, nats=nats.url, token=SECRET)
        worker.start()
        client = Client()
        background.run(client.connect(nats.url))
        bus = Bus(background, client, plane.node_id)
        until(bus.listens)
        request = {"backend": "stub", "model_id": MODEL, "backend_galleries": galleries.text()}
        assert bus.ask("backend.install", request)["success"], worker.log.read_text()
        [told] = plane.of("register")
        yield make_node(http_address=told.body["http_address"], join_token=environment_token)
        background.run(client.close())
        worker.kill()
        nats.stop()
        plane.stop(background)


def test_what_our_worker_keeps_is_what_the_manager_shows(printing: BackendNode) -> None:
    assert logs.models(printing, now=NOW) == [MODEL]
    until(lambda: bool(logs.lines(printing, f"{MODEL}#0", now=NOW)))
    [line] = logs.lines(printing, f"{MODEL}#0", now=NOW)
    assert (line.stream, line.text[:4]) == ("stdout", "stub")
    assert line.at is not None
    assert logs.lines(printing, MODEL, now=NOW) == [line]
