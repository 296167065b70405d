"""One look at what 1,000 workers run, 5,000 replicas in all: asked over NATS, settled in rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench import harness
from bench.fleet import make_nodes
from bench.running import EACH, workers
from clustermgr import bootstrap
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.states import ReplicaState
from scheduling.models import StrayProcess
from scheduling.services import observing

SIZES = (100, 1000)
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def run() -> None:
    bootstrap.install_broker()
    bus = NatsBus(settings.CLUSTER)
    gateway = NodeGateway(bus)
    with workers(settings.CLUSTER.nats_url):
        rows = [row for size in SIZES for row in _rounds(gateway, size)]
    bus.close()
    print(f"{EACH} replicas on each node, all in one answering process; median of 7 rounds")
    harness.table(("", "nodes", "statements", "ms"), rows)


def _rounds(gateway: NodeGateway, size: int) -> Iterator[tuple[object, ...]]:
    _fill(size)
    for title, before in (
        ("nothing new", _confirmed),
        ("all to be confirmed", _unconfirmed),
        ("one missed and one stray on each", _surprising),
    ):
        before()
        with CaptureQueriesContext(connection) as seen:
            _look(gateway)
        taken = harness.milliseconds(lambda: _look(gateway), before=before)
        yield title, size, len(seen), taken


def _look(gateway: NodeGateway) -> None:
    observing.observe(gateway=gateway, clock=lambda: NOW)


def _confirmed() -> None:
    StrayProcess.objects.all().delete()
    NodeModel.objects.update(last_confirmed_at=NOW, misses=0, missed_at=None, replica_index=0)


def _unconfirmed() -> None:
    _confirmed()
    NodeModel.objects.update(last_confirmed_at=LONG_AGO)


def _surprising() -> None:
    """One row of each node stands for another slot than the process that runs."""
    _confirmed()
    NodeModel.objects.filter(model_name="model-0").update(replica_index=1)


def _fill(size: int) -> None:
    NodeModel.objects.all().delete()
    BackendNode.objects.all().delete()
    NodeModel.objects.bulk_create(
        NodeModel(
            id=uuid4(),
            node=node,
            model_name=f"model-{number}",
            state=ReplicaState.LOADED,
            config_revision="r1",
            created_at=LONG_AGO,
            updated_at=LONG_AGO,
        )
        for node in make_nodes(range(size), now=NOW)
        for number in range(EACH)
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
