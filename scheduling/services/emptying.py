"""What still stands on a node that is being emptied, and what each waits for; only read."""

from collections.abc import Collection
from dataclasses import dataclass

from nodes.models import BackendNode, NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob, ModelSchedulingConfig
from scheduling.services import surging


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """One replica that has not gone yet."""

    replica: NodeModel
    needed: bool = False  # its rule's minimum is not served elsewhere
    replacement: LoadJob | None = None  # the load elsewhere that is furthest
    obstacle: str = ""  # why there is none


def remaining(node: BackendNode) -> list[Remaining]:
    """Six statements at most, however many replicas."""
    rows = list(node.replicas.order_by("model_name", "replica_index"))
    loaded = [row for row in rows if row.state == ReplicaState.LOADED]
    in_question = [row for row in loaded if row.withdrawn_at is None]
    kept = surging.needed(in_question) if in_question else set()
    names = {row.model_name for row in loaded if row.pk in kept}
    jobs, obstacles = _replacements(node, names), _obstacles(names)
    return [
        Remaining(
            replica=row,
            needed=row.pk in kept,
            replacement=jobs.get(row.model_name) if row.pk in kept else None,
            obstacle=obstacles.get(row.model_name, "") if row.pk in kept else "",
        )
        for row in rows
    ]


def _replacements(node: BackendNode, names: Collection[str]) -> dict[str, LoadJob]:
    if not names:
        return {}
    jobs = LoadJob.objects.active().filter(model_name__in=names).exclude(node=node)
    return {job.model_name: job for job in jobs.select_related("node").order_by("percentage")}


def _obstacles(names: Collection[str]) -> dict[str, str]:
    if not names:
        return {}
    rules = ModelSchedulingConfig.objects.filter(model_name__in=names)
    return dict(rules.values_list("model_name", "unsatisfiable_reason"))
