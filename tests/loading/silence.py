"""A played worker, and a manager that may be in a hurry."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings as django_settings

from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.models import BackendNode
from nodes.services import environment
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services.desk import Desk
from scheduling.services.loading import Hands
from tests.backendops.conftest import Clock
from tests.factories import NOW, make_job, make_model, make_node, make_replica
from tests.scripted import ScriptedWorker

LONG_AGO = NOW - timedelta(days=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus() -> Iterator[NatsBus]:
    bus = NatsBus(django_settings.CLUSTER)
    yield bus
    bus.close()


@pytest.fixture
def hands(bus: NatsBus, clock: Clock) -> Hands:
    return Hands(gateway=NodeGateway(bus), desk=Desk(clock=clock), clock=clock)


@pytest.fixture
def hasty(bus: NatsBus, clock: Clock) -> Hands:
    """They wait for an answer no longer than a moment."""
    moment = timedelta(milliseconds=200)
    brief = replace(django_settings.CLUSTER, install_timeout=moment, running_timeout=moment)
    return Hands(gateway=NodeGateway(bus, cluster=brief), desk=Desk(clock=clock), clock=clock)


@pytest.fixture
def node(db: None) -> BackendNode:
    secret = django_settings.CLUSTER.registration_token
    token = environment.sync(secret, auto_approve=True, now=NOW)
    return make_node(join_token=token, approved_at=LONG_AGO)


@pytest.fixture
def worker(node: BackendNode) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(node_id=node.pk) as played:
        yield played


@pytest.fixture
def job(node: BackendNode) -> LoadJob:
    make_model()
    row = make_replica(node, state=ReplicaState.STAGING, address="", config_revision="r1")
    return make_job(node, replica=row)
