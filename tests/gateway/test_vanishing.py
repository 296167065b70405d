from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NodeRestarted, NodeVanished
from nodes.gateway import NodeGateway
from nodes.outcomes import Installed
from nodes.wire import subjects
from tests.scripted import ScriptedWorker


@pytest.fixture
def watchful(bus: NatsBus) -> NodeGateway:
    """Looks after a node that has been quiet for a moment, and would wait a minute for it."""
    cluster = replace(
        settings.CLUSTER,
        probe_after=timedelta(milliseconds=50),
        install_timeout=timedelta(minutes=1),
    )
    return NodeGateway(bus, cluster=cluster)


def test_a_worker_that_dies_at_it_is_known_long_before_the_timeout(
    watchful: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.listens(subjects.INSTALL)  # and to nothing else: nobody answers backend.list
    with pytest.raises(NodeVanished):
        watchful.install(worker.node_id, backend="llama-cpp")


def test_a_worker_that_is_busy_is_alive(watchful: NodeGateway, worker: ScriptedWorker) -> None:
    looks: list[bytes] = []

    def look(payload: bytes) -> bytes:
        looks.append(payload)
        if len(looks) == 3:
            worker.answers_late(b'{"success":true,"address":"h:1"}')
        return b'{"backends":null}'

    worker.listens(subjects.INSTALL)
    with ScriptedWorker(node_id=worker.node_id) as same:
        same.answers(subjects.LIST_BACKENDS, look)
        assert watchful.install(worker.node_id, backend="x") == Installed(address="h:1")
    assert len(looks) >= 3


def test_a_worker_that_came_back_as_another_process_has_lost_it(
    watchful: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.listens(subjects.INSTALL)
    with ScriptedWorker(node_id=worker.node_id) as after:
        after.answers(subjects.LIST_BACKENDS, b'{"backends":null}')
        with pytest.raises(NodeRestarted):
            watchful.install(worker.node_id, backend="x", restarted=lambda: True)
