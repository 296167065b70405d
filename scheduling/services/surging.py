"""Which replicas of a node that is being emptied are still needed there."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from nodes.models import NodeModel
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig


def needed(candidates: Sequence[NodeModel]) -> set[UUID]:
    """Those to keep until as many serve elsewhere as the rule's minimum says.

    Three statements, however many replicas. A model without a definition can be loaded nowhere
    else, and one without a minimum need not be: both go.
    """
    names = {replica.model_name for replica in candidates}
    rules = ModelSchedulingConfig.objects.filter(model_name__in=names, min_replicas__gt=0)
    minimum = dict(rules.values_list("model_name", "min_replicas"))
    defined = ModelLoadInfo.objects.filter(pk__in=minimum)
    revision = dict(defined.values_list("model_name", "config_revision"))
    serving = NodeModel.objects.serving().filter(model_name__in=revision)
    elsewhere = Counter(
        name
        for name, known in serving.values_list("model_name", "config_revision")
        if known == revision[name]
    )
    return {
        replica.pk
        for replica in candidates
        if replica.model_name in revision
        and elsewhere[replica.model_name] < minimum[replica.model_name]
    }
