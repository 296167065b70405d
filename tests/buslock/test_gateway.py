import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.outcomes import Installed
from nodes.wire import InstallProgress
from nodes.wire.permissions import permissions_of
from nodes.wire.subjects import INSTALL, RUNNING_MODELS, STOP_NODE, Role
from tests.buslock.clients import credentials_of
from tests.contract.nats_server import Server
from tests.scripted import ScriptedWorker
from tests.services import until

NODE = uuid.UUID(int=7)


@pytest.fixture
def gateway(locked: Server) -> Iterator[NodeGateway]:
    bus = NatsBus(locked.settings)
    yield NodeGateway(bus)
    bus.close()


@pytest.fixture
def worker(locked: Server) -> Iterator[ScriptedWorker]:
    may = permissions_of(Role.WORKER, NODE, answer_within=timedelta(minutes=1))
    login = {"user_credentials": credentials_of(locked, may)}
    with ScriptedWorker(node_id=NODE, url=locked.url, login=login) as worker:
        yield worker


def test_an_install_with_its_progress_passes_a_locked_bus(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    half = InstallProgress(op_id="op-1", node_id=str(NODE), backend="echo", percentage=50)
    done = b'{"success":true,"address":"10.0.0.7:50052"}'
    worker.answers(INSTALL, done, progress=[half.encode()])
    seen: list[float] = []
    outcome = gateway.install(
        NODE,
        backend="echo",
        op_id="op-1",
        on_progress=lambda progress: seen.append(progress.percentage),
    )
    assert outcome == Installed(address="10.0.0.7:50052")
    assert seen == [50]


def test_a_question_and_an_order_pass_a_locked_bus(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(RUNNING_MODELS, b'{"models":[]}')
    worker.listens(STOP_NODE)
    assert gateway.running_models(NODE) == ()
    gateway.stop_node(NODE)
    until(lambda: [path for path, _ in worker.heard] == [RUNNING_MODELS.path, STOP_NODE.path])
