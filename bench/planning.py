"""A reconcile tick over 1,000 nodes, 500 models and 5,000 replicas, against the bare reading."""

import gc
import random
import resource
import time
from datetime import UTC, datetime
from uuid import uuid4

from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from bench import harness
from bench.fleet import make_nodes
from clustermgr import bootstrap
from nodes.models import NodeLabel, NodeModel
from nodes.states import LabelSource, ReplicaState
from scheduling import snapshot
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.planning import deciding
from scheduling.planning.views import ClusterView, Knobs
from scheduling.services import reconciling

NODES, MODELS, REPLICAS, MISSING = 1000, 500, 5000, 324
TICKS = 200
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GIB = 2**30
TIERS = ("fast", "slow", "spare")
# What a tick has to know, read as plainly as can be
BARE = (
    """
    SELECT id, name, node_type, approved_at, liveness, drain_requested_at, cordoned_at,
           quarantined_until, max_replicas_per_model, total_vram, available_vram,
           vram_budget_bytes, total_disk, available_disk
      FROM nodes_backendnode WHERE retired_at IS NULL
    """,
    "SELECT node_id, key, value, source FROM nodes_nodelabel",
    "SELECT node_id, key, value, effect FROM nodes_nodetaint",
    """
    SELECT id, node_id, model_name, replica_index, state, in_flight, last_used, config_revision,
           suspect_since, outdated_at, cleanup_attempts, created_at
      FROM nodes_nodemodel
    """,
    """
    SELECT id, node_id, model_name, replica_index, config_revision, state, reserved_vram,
           reservation_ended_at
      FROM scheduling_loadjob
     WHERE state IN ('pending', 'installing', 'staging', 'loading')
        OR (reservation_ended_at IS NULL AND reserved_vram > 0)
    """,
    """
    SELECT model_name, config_revision, backend, size_bytes, vram_bytes, concurrency_group,
           failures, retry_at, last_error
      FROM scheduling_modelloadinfo
    """,
    """
    SELECT model_name, selector, tolerations, min_replicas, max_replicas, spread_all, pinned,
           priority, strategy, unsatisfiable_since, unsatisfiable_until, unsatisfiable_reason
      FROM scheduling_modelschedulingconfig
    """,
)


def run() -> None:
    bootstrap.install_broker()  # a tick rings for every job it opens
    fill()
    rows = [_quiet()]
    view = snapshot.take(now=NOW)
    rows += _busy()
    print(f"{NODES} nodes, {MODELS} models, {REPLICAS} replicas; median of 7 rounds")
    harness.table(("", "statements", "ms", "bare SQL ms", "ratio"), rows)
    _placements(view)
    _memory()


def _quiet() -> tuple[object, ...]:
    satisfy()
    statements = _statements()
    ours, bare = harness.milliseconds(tick), harness.milliseconds(_bare)
    return "nothing to do", statements, ours, bare, f"{ours / bare:.1f}x"


def _busy() -> list[tuple[object, ...]]:
    _starve()
    statements = _statements()
    bare = harness.milliseconds(_bare, before=_forget)
    ours = harness.milliseconds(tick, before=_forget)
    _forget()
    return [(f"{MISSING} are missing", statements, ours, bare, f"{ours / bare:.1f}x")]


def _placements(view: ClusterView) -> None:
    """The decision alone, for a cluster where everything is still to be placed."""
    empty = ClusterView(nodes=view.nodes, models=view.models)
    started = time.perf_counter()
    plan = deciding.plan(empty, now=NOW, knobs=Knobs())
    took = time.perf_counter() - started
    print(f"planner: {len(plan.place)} placed, {len(plan.place) / took:,.0f} placements/s")


def _memory() -> None:
    satisfy()
    peaks = []
    for _ in range(2):
        for _ in range(TICKS // 2):
            tick()
        gc.collect()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"memory: {peaks[0]:.1f} MiB at most in {TICKS // 2} ticks, {peaks[1]:.1f} in {TICKS}")


def tick() -> None:
    if reconciling.tick(now=NOW) is None:
        raise RuntimeError("somebody else reconciles")


def _statements() -> int:
    with CaptureQueriesContext(connection) as seen:
        tick()
    return sum(not query["sql"].startswith(("BEGIN", "COMMIT")) for query in seen)


@transaction.atomic
def _bare() -> None:
    """The same rows, plainly: each table's columns, fetched and dropped."""
    for statement in BARE:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchall()


def fill() -> None:
    chance = random.Random(7)
    nodes = make_nodes(
        range(NODES),
        now=NOW,
        max_replicas_per_model=2,
        available_vram=20 * GIB,
        total_disk=1000 * GIB,
        available_disk=600 * GIB,
    )
    NodeLabel.objects.bulk_create(
        NodeLabel(node=node, key=key, value=value, source=LabelSource.AUTO)
        for number, node in enumerate(nodes)
        for key, value in (
            ("tier", TIERS[number % 3]),
            ("gpu.vendor", "nvidia"),
            ("arch", "amd64"),
            ("os", "linux"),
            ("node.name", node.name),
            ("slots", "2"),
        )
    )
    names = [f"model-{number:03}" for number in range(MODELS)]
    ModelLoadInfo.objects.bulk_create(
        ModelLoadInfo(
            model_name=name,
            backend="reference",
            config_revision="r1",
            vram_bytes=GIB // 4,
            size_bytes=GIB,
            created_at=NOW,
            updated_at=NOW,
        )
        for name in names
    )
    ModelSchedulingConfig.objects.bulk_create(
        ModelSchedulingConfig(
            model_name=name,
            selector="" if number % 2 else f"tier={TIERS[number % 3]}",
            created_at=NOW,
            updated_at=NOW,
        )
        for number, name in enumerate(names)
    )
    spots = chance.sample([(n, m) for n in range(NODES) for m in range(1, MODELS, 2)], REPLICAS)
    NodeModel.objects.bulk_create(
        NodeModel(
            id=uuid4(),
            node=nodes[node],
            model_name=names[model],
            state=ReplicaState.LOADED,
            config_revision="r1",
            last_used=NOW,
            created_at=NOW,
            updated_at=NOW,
        )
        for node, model in spots
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def satisfy() -> None:
    """Everybody has what the rule asks for."""
    _minimum(extra=0, models=MODELS)


def _starve() -> None:
    """One more is wanted of so many models."""
    satisfy()
    _minimum(extra=1, models=MISSING)


def _minimum(*, extra: int, models: int) -> None:
    have: dict[str, int] = {}
    for name in NodeModel.objects.values_list("model_name", flat=True):
        have[name] = have.get(name, 0) + 1
    rules = list(ModelSchedulingConfig.objects.order_by("model_name")[:models])
    for rule in rules:
        rule.min_replicas = have.get(rule.model_name, 0) + extra
    ModelSchedulingConfig.objects.bulk_update(rules, ["min_replicas"])


def _forget() -> None:
    """Take back what the last round placed."""
    LoadJob.objects.all().delete()
    NodeModel.objects.exclude(state=ReplicaState.LOADED).delete()
