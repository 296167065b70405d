"""Which replicas of a node that is being emptied are still needed there."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from nodes.models import NodeModel
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig


def needed(candidates: Sequence[NodeModel]) -> set[UUID]:
    """Those that serve until as many others do, on nodes that stay, as the rule's minimum says.

    Three statements, however many replicas. A model without a definition can be loaded nowhere
    else, and one without a minimum need not be: both go.
    """
    names = {replica.model_name for replica in candidates}
    rules = ModelSchedulingConfig.objects.filter(model_name__in=names, min_replicas__gt=0)
    minimum = dict(rules.values_list("model_name", "min_replicas"))
    defined = ModelLoadInfo.objects.in_bulk(minimum)
    staying = NodeModel.objects.serving().filter(node__drain_requested_at=None)
    rows = staying.filter(model_name__in=defined).values_list("model_name", "config_revision")
    elsewhere = Counter(name for name, known in rows if _counts(defined[name], known))
    return {
        replica.pk
        for replica in candidates
        if replica.model_name in defined
        and replica.outdated_at is None  # it serves nobody anyway
        and elsewhere[replica.model_name] < minimum[replica.model_name]
    }


def _counts(model: ModelLoadInfo, revision: str) -> bool:
    """While old replicas are replaced one by one, they serve as well as new ones."""
    return model.rolling_since is not None or revision == model.config_revision
