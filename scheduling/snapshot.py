"""Many rows into one picture for a plan: seven statements at any size."""

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.db.models import Q

from nodes.models import BackendNode, NodeLabel, NodeModel, NodeTaint
from nodes.states import LABEL_PRECEDENCE
from nodes.taints import Taint
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.planning.views import (
    NOTHING,
    ClusterView,
    JobView,
    ModelView,
    NodeView,
    ReplicaView,
    RuleView,
)
from scheduling.states import ACTIVE

# In the order of the views' fields
NODE = (
    "id",
    "name",
    "node_type",
    "approved_at",
    "liveness",
    "drain_requested_at",
    "cordoned_at",
    "quarantined_until",
    "max_replicas_per_model",
    "total_vram",
    "available_vram",
    "vram_budget_bytes",
    "total_disk",
    "available_disk",
)
REPLICA = (
    "id",
    "node_id",
    "model_name",
    "replica_index",
    "state",
    "in_flight",
    "last_used",
    "config_revision",
    "suspect_since",
    "outdated_at",
    "withdrawn_at",
    "cleanup_attempts",
    "created_at",
)
JOB = (
    "id",
    "node_id",
    "model_name",
    "replica_index",
    "config_revision",
    "state",
    "reserved_vram",
    "reservation_ended_at",
    "replaces_id",
)
RULE = (
    "selector",
    "tolerations",
    "min_replicas",
    "max_replicas",
    "spread_all",
    "pinned",
    "priority",
    "strategy",
    "unsatisfiable_since",
    "unsatisfiable_until",
    "unsatisfiable_reason",
)
MODEL = ("config_revision", "backend", "size_bytes", "vram_bytes", "concurrency_group")
TRIES = ("failures", "retry_at", "last_error", "rolling_replicas")
STRENGTH = {source.value: -place for place, source in enumerate(LABEL_PRECEDENCE)}


def take() -> ClusterView:
    """The cluster as it is in this transaction."""
    return ClusterView(nodes=_nodes(), models=_models(), replicas=_replicas(), jobs=_jobs())


def _nodes() -> tuple[NodeView, ...]:
    labels, taints = _labels(), _taints()
    rows = BackendNode.objects.present().order_by().values_list(*NODE)
    return tuple(
        NodeView._make((*row, labels.get(row[0], NOTHING), taints.get(row[0], ()))) for row in rows
    )


def _labels() -> dict[UUID, dict[str, str]]:
    """What counts on each node. Precedence is settled here: sorting in SQL takes longer."""
    found: defaultdict[UUID, dict[str, str]] = defaultdict(dict)
    strongest: dict[tuple[UUID, str], int] = {}
    rows = NodeLabel.objects.order_by().values_list("node_id", "key", "value", "source")
    for node, key, value, source in rows.iterator(chunk_size=10_000):
        strength = STRENGTH[source]
        if strength >= strongest.get((node, key), strength):
            strongest[node, key] = strength
            found[node][key] = value
    return found


def _taints() -> dict[UUID, tuple[Taint, ...]]:
    found: defaultdict[UUID, tuple[Taint, ...]] = defaultdict(tuple)
    rows = NodeTaint.objects.order_by("key").values_list("node_id", "key", "value", "effect")
    for node, key, value, effect in rows:
        found[node] += (Taint(key=key, value=value, effect=effect),)
    return found


def _replicas() -> tuple[ReplicaView, ...]:
    return tuple(map(ReplicaView._make, NodeModel.objects.order_by().values_list(*REPLICA)))


def _jobs() -> tuple[JobView, ...]:
    open_ = Q(state__in=ACTIVE) | Q(reservation_ended_at=None, reserved_vram__gt=0)
    rows = LoadJob.objects.filter(open_).order_by().values_list(*JOB)
    return tuple(map(JobView._make, rows))


def _models() -> tuple[ModelView, ...]:
    rules = {
        row["model_name"]: _rule(row)
        for row in ModelSchedulingConfig.objects.order_by().values("model_name", *RULE)
    }
    defined = [
        _model(row, rules.pop(row["model_name"], None))
        for row in ModelLoadInfo.objects.order_by().values("model_name", *MODEL, *TRIES)
    ]
    return (*defined, *(ModelView(name=name, rule=rule) for name, rule in rules.items()))


def _rule(row: dict[str, Any]) -> RuleView:
    return RuleView(**{name: row[name] for name in RULE})


def _model(row: dict[str, Any], rule: RuleView | None) -> ModelView:
    return ModelView(
        name=row["model_name"],
        revision=row["config_revision"],
        backend=row["backend"],
        size_bytes=row["size_bytes"],
        vram_bytes=row["vram_bytes"],
        group=row["concurrency_group"],
        failures=row["failures"],
        retry_at=row["retry_at"],
        last_error=row["last_error"],
        rolling=row["rolling_replicas"],
        rule=rule,
    )
