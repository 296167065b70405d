"""The door for callers in this process: a replica for the length of a block."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import connection

from clustermgr.embedded.parts import ROOT
from nodes.models import NodeModel
from scheduling.models import LoadJob, RouteLease
from scheduling.services import leasing, routing
from scheduling.services.coldstart import ModelLoading
from tests.factories import make_model, make_node, make_replica
from tests.routing.test_cold_start import loaded
from tests.services import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]

clock = partial(datetime.now, UTC)
leased = partial(routing.leased, "llama", by="tests", clock=clock)
SHORT = timedelta(seconds=1)

CRASHES = """
import os
from datetime import UTC, datetime, timedelta
import django
django.setup()
from scheduling.services import routing
clock = lambda: datetime.now(UTC)
with routing.leased("llama", by="crashing", clock=clock, ttl=timedelta(seconds=1)):
    os._exit(7)
"""


class Failed(Exception):
    pass


def in_flight() -> int:
    return NodeModel.objects.get().in_flight


def test_a_block_counts_on_its_replica_until_it_ends() -> None:
    replica = make_replica(make_node())
    with leased() as lease:
        assert (lease.replica, in_flight()) == (replica.pk, 1)
        assert RouteLease.objects.get().holder == "tests"
    assert in_flight() == 0
    assert not RouteLease.objects.exists()


def test_a_block_that_fails_gives_its_replica_back() -> None:
    make_replica(make_node())

    def fails() -> None:
        with leased():
            raise Failed

    with pytest.raises(Failed):
        fails()
    assert in_flight() == 0


def test_a_block_that_outlasts_its_lease_keeps_it() -> None:
    make_replica(make_node())
    with leased(ttl=SHORT) as lease:
        until(lambda: clock() > lease.expires_at)
        leasing.sweep(now=clock())
        assert in_flight() == 1
    assert in_flight() == 0


def test_blocks_side_by_side_are_renewed_each_for_its_own_time() -> None:
    make_replica(make_node())
    with leased(ttl=SHORT) as short, leased(ttl=timedelta(hours=1)) as long, leased(ttl=SHORT):
        expires = dict(RouteLease.objects.values_list("pk", "expires_at"))
        until(lambda: RouteLease.objects.get(pk=short.id).expires_at > expires[short.id])
        assert RouteLease.objects.get(pk=long.id).expires_at == expires[long.id]
    assert in_flight() == 0


def test_the_first_block_waits_for_the_load() -> None:
    make_model()
    make_node()

    def serve() -> None:
        try:
            until(LoadJob.objects.exists)
            loaded()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        with leased(within=timedelta(minutes=1)) as lease:
            assert lease.address == "gpu-1.example:50052"
        serving.result()


def test_whose_patience_ends_first_is_told_so_and_holds_nothing() -> None:
    make_model()
    make_node()
    with pytest.raises(ModelLoading), leased(within=timedelta(0)):
        pass
    assert LoadJob.objects.active().count() == 1
    assert not RouteLease.objects.exists()


def test_a_process_that_crashes_in_a_block_is_forgotten_when_its_lease_expires() -> None:
    make_replica(make_node())
    database = os.environ["DATABASE_URL"].rsplit("/", 1)[0]
    env = {
        **os.environ,
        "DATABASE_URL": f"{database}/{connection.settings_dict['NAME']}",
        "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
    }
    assert subprocess.run([sys.executable, "-c", CRASHES], cwd=ROOT, env=env).returncode == 7
    left = RouteLease.objects.get()
    assert (left.holder, in_flight()) == ("crashing", 1)
    leasing.sweep(now=left.expires_at)
    assert in_flight() == 0
