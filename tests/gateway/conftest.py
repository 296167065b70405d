from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from tests.scripted import ScriptedWorker

BRIEFLY = timedelta(milliseconds=100)


@pytest.fixture
def worker() -> Iterator[ScriptedWorker]:
    with ScriptedWorker() as worker:
        yield worker


@pytest.fixture
def bus() -> Iterator[NatsBus]:
    bus = NatsBus(settings.CLUSTER)
    yield bus
    bus.close()


@pytest.fixture
def gateway(bus: NatsBus) -> NodeGateway:
    return NodeGateway(bus)


@pytest.fixture
def impatient(bus: NatsBus) -> NodeGateway:
    """Waits for nothing longer than a moment."""
    hasty = replace(
        settings.CLUSTER,
        install_timeout=BRIEFLY,
        upgrade_timeout=BRIEFLY,
        delete_timeout=BRIEFLY,
        list_timeout=BRIEFLY,
        running_timeout=BRIEFLY,
        unload_timeout=BRIEFLY,
        stop_timeout=BRIEFLY,
        model_delete_timeout=BRIEFLY,
    )
    return NodeGateway(bus, cluster=hasty)
