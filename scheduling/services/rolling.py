"""How an edit reaches the replicas that run: at once, or one after the other while they serve."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import Q

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import shown
from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.states import ReplicaState
from scheduling.models import ModelLoadInfo
from scheduling.states import Cutover


def split(document: object) -> tuple[Cutover | None, object]:
    """How an edit wants to reach what runs, and the rest of what it says."""
    if not isinstance(document, Mapping) or document.get("cutover") is None:
        return None, document
    said = document["cutover"]
    if said not in Cutover.values:
        known = " or ".join(Cutover.values)
        raise InvalidInput(f"cutover must be {known}, not {shown(str(said))}.")
    return Cutover(said), {key: value for key, value in document.items() if key != "cutover"}


def cut_over(model: ModelLoadInfo, *, cutover: Cutover, now: datetime) -> None:
    """Retire what is not of the current revision; what is current again serves again.

    The caller holds the model. A rolling one spares what serves: the reconciler retires each
    when another stands in for it. With nobody to spare it is over before it began.
    """
    rows = NodeModel.objects.filter(model_name=model.model_name)
    rows.locked()
    current = rows.filter(config_revision=model.config_revision)
    current.filter(outdated_at__isnull=False).update(outdated_at=None, updated_at=now)
    serving = rows.serving()
    spared = serving.exclude(config_revision=model.config_revision)
    if cutover == Cutover.ROLLING and spared.exists():
        coming_up = _others(model).exclude(state=ReplicaState.LOADED)
        coming_up.update(outdated_at=now, updated_at=now)
        goal = max(serving.count(), model.rolling_replicas)
        _write(model, since=model.rolling_since or now, goal=goal)
        return
    _others(model).update(outdated_at=now, updated_at=now)
    _write(model, since=None, goal=0)


def to_replace(name: str) -> int:
    """How many replicas of an older revision still have to be replaced."""
    rows = NodeModel.objects.filter(model_name=name).exclude(state=ReplicaState.UNLOADING)
    model = ModelLoadInfo.objects.filter(pk=name).first()
    old = ~Q(config_revision=model.config_revision) if model and model.rolling_since else Q()
    retired = Q(outdated_at__isnull=False)
    return rows.filter(retired | old if old else retired).count()


def _others(model: ModelLoadInfo) -> NodeModelQuerySet:
    rows = NodeModel.objects.filter(model_name=model.model_name, outdated_at=None)
    return rows.exclude(config_revision=model.config_revision)


def _write(model: ModelLoadInfo, *, since: datetime | None, goal: int) -> None:
    if (model.rolling_since, model.rolling_replicas) != (since, goal):
        model.rolling_since, model.rolling_replicas = since, goal
        model.save(update_fields=["rolling_since", "rolling_replicas"])
