"""A health sweep over 5,000 nodes, against a loop that saves node by node."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from bench import harness
from bench.fleet import make_nodes
from nodes.models import BackendNode, ClusterEvent, ClusterState, NodeModel
from nodes.services import sweeping
from nodes.states import Liveness, ReplicaState

NODES = 5000
SILENT = NODES // 100
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
STALE_AFTER = timedelta(seconds=60)


def run() -> None:
    # The brake would spread 1 % over minutes; here all of them go at once, on both sides.
    settings.CLUSTER = replace(settings.CLUSTER, offline_burst=NODES)
    make_nodes(range(NODES), now=NOW)
    rows = []
    for case, restore in (("quiet", _all_well), (f"{SILENT} fall silent", _some_silent)):
        ours, loop = _measure(_sweep, restore), _measure(_loop, restore)
        rows.append((case, *ours, *loop, f"{loop[1] / ours[1]:.1f}x"))
    print(f"{NODES} nodes, 2 replicas each; median of 7 rounds")
    harness.table(("", "statements", "ms", "loop: statements", "ms", "faster"), rows)


def _measure(work: Callable[[], object], restore: Callable[[], object]) -> tuple[int, float]:
    restore()
    with CaptureQueriesContext(connection) as captured:
        work()
    boundaries = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    statements = sum(not query["sql"].startswith(boundaries) for query in captured)
    return statements, harness.milliseconds(work, before=restore)


def _sweep() -> None:
    if sweeping.sweep(now=NOW) is None:
        raise RuntimeError("somebody else sweeps")


def _loop() -> None:
    """What one writes first: every node through the ORM, every verdict a few statements."""
    for node in BackendNode.objects.filter(retired_at=None):
        if node.liveness == Liveness.OFFLINE or NOW - node.last_heartbeat <= STALE_AFTER:
            continue
        with transaction.atomic():
            node.liveness = Liveness.OFFLINE
            node.liveness_changed_at = NOW
            node.save()
            for replica in node.replicas.all():
                replica.delete()
            ClusterEvent.objects.create(
                at=NOW, kind="node.went_offline", node=node, subject=node.name, actor="system"
            )


def _all_well() -> None:
    """Everybody beat a second ago, two replicas each, nothing written down yet."""
    ClusterState.objects.all().delete()
    ClusterState.objects.create(
        last_sweep_at=NOW - timedelta(seconds=15), offline_allowance=float(NODES)
    )
    ClusterEvent.objects.all().delete()
    gone = BackendNode.objects.exclude(liveness=Liveness.HEALTHY)
    gone.update(liveness=Liveness.HEALTHY)
    BackendNode.objects.update(last_heartbeat=NOW - timedelta(seconds=1))
    NodeModel.objects.bulk_create(
        NodeModel(
            node=node,
            model_name="llama",
            replica_index=index,
            state=ReplicaState.LOADED,
            created_at=NOW,
            updated_at=NOW,
        )
        for node in BackendNode.objects.filter(replicas=None)
        for index in range(2)
    )
    _vacuum()


def _some_silent() -> None:
    _all_well()
    silent = BackendNode.objects.order_by("name").values("pk")[:SILENT]
    BackendNode.objects.filter(pk__in=silent).update(last_heartbeat=NOW - timedelta(seconds=75))


def _vacuum() -> None:
    # Autovacuum does this in production; without it every round would scan the last one's dead
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE nodes_backendnode, nodes_nodemodel, nodes_clusterevent")
