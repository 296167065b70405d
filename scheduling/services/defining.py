"""What models are: defined, edited, deleted; and how an edit reaches the replicas that run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Collate

from clustermgr.lib.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from nodes.models import NodeModel
from nodes.services import events
from scheduling.definitions import Definition
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import ringing, rolling, stopping
from scheduling.states import Cutover

MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The model as it is now, and how many of its replicas are of an older revision."""

    model: ModelLoadInfo
    changed: bool
    to_replace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    created: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    to_replace: int = 0


def find(name: str) -> ModelLoadInfo:
    found = ModelLoadInfo.objects.filter(pk=name.replace("\x00", "")).first()
    if found is None:
        raise NotFound(f"There is no model {name}.")
    return found


def definition_of(model: ModelLoadInfo) -> Definition:
    return Definition(
        name=model.model_name,
        backend=model.backend,
        options=model.options,
        size_bytes=model.size_bytes,
        vram_bytes=model.vram_bytes,
        concurrency_group=model.concurrency_group,
    )


@transaction.atomic
def create(definition: Definition, *, by: str, now: datetime) -> ModelLoadInfo:
    """Define a model that nobody knew; rules and replicas of that name may be there before it."""
    model = ModelLoadInfo(
        model_name=definition.name,
        created_at=now,
        created_by=by,
        updated_at=now,
        updated_by=by,
        **_columns(definition),
    )
    try:
        with transaction.atomic():
            model.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"There is a model {definition.name} already; edit it instead.") from error
    rolling.cut_over(model, cutover=Cutover.AT_ONCE, now=now)
    events.record(
        "model.created", actor=by, now=now, subject=model.model_name, after=_told(definition)
    )
    ringing.reconcile_soon()
    return model


@transaction.atomic
def edit(
    name: str,
    wanted: Definition,
    *,
    by: str,
    now: datetime,
    expected_version: int | None = None,
    cutover: Cutover | None = None,
) -> Edited:
    """Make the model be `wanted`. Replicas of another revision stop serving in the same moment.

    Unless by a rolling `cutover`: then each serves until a new one stands in for it. An edit that
    says nothing and changes no revision leaves a rolling one alone.
    """
    model = _held(name, expected_version=expected_version)
    before = definition_of(model)
    if wanted.name != model.model_name:
        before.changed({"name": wanted.name})  # which says why not
    if _columns(before) == _columns(wanted):
        if cutover is not None:
            rolling.cut_over(model, cutover=cutover, now=now)
        return Edited(model=model, changed=False, to_replace=rolling.to_replace(name))
    # A new description deserves a new try
    revised = wanted.revision != model.config_revision
    changes = {**_columns(wanted), "failures": 0, "retry_at": None, "last_error": ""}
    for column, value in changes.items():
        setattr(model, column, value)
    model.version, model.updated_at, model.updated_by = model.version + 1, now, by
    model.save(update_fields=[*changes, "version", "updated_at", "updated_by"])
    if revised or cutover is not None:
        rolling.cut_over(model, cutover=cutover or Cutover.AT_ONCE, now=now)
    events.record(
        "model.edited",
        actor=by,
        now=now,
        subject=name,
        before=_told(before),
        after={**_told(wanted), "cutover": cutover or Cutover.AT_ONCE},
    )
    ringing.reconcile_soon()
    return Edited(model=model, changed=True, to_replace=rolling.to_replace(name))


@transaction.atomic
def delete(
    name: str,
    *,
    by: str,
    now: datetime,
    force: bool = False,
    expected_version: int | None = None,
) -> int:
    """Forget the model; by force also its rule, and its replicas are unloaded. Says how many."""
    model = _held(name, expected_version=expected_version)
    rule = ModelSchedulingConfig.objects.filter(model_name=name)
    if not force:
        replicas = NodeModel.objects.filter(model_name=name).count()
        _refuse_if_wanted(name, ruled=rule.exists(), replicas=replicas)
    rule.delete()
    count = stopping.stop_all(name, by=by, now=now, force=True)
    told = _told(definition_of(model))
    model.delete()
    events.record(
        "model.deleted", actor=by, now=now, subject=name, before=told, after={"unloading": count}
    )
    ringing.reconcile_soon()
    return count


@transaction.atomic
def import_all(documents: object, *, by: str, now: datetime) -> Imported:
    """Define or edit every model of a list, or none of them."""
    if not isinstance(documents, list):
        raise InvalidInput("A list of models is needed.")
    if len(documents) > MOST_AT_ONCE:
        raise InvalidInput(f"At most {MOST_AT_ONCE} models can be imported at once.")
    wanted = [_numbered(place, document) for place, document in enumerate(documents, start=1)]
    _refuse_twice(wanted)
    known = _hold([one.name for one in wanted])
    done = Imported()
    count = 0
    # In the order of their names: two imports that overlap wait instead of deadlocking
    for one in sorted(wanted, key=lambda one: one.name):
        if one.name not in known:
            create(one, by=by, now=now)
            done.created.append(one.name)
            continue
        edited = edit(one.name, one, by=by, now=now)
        (done.edited if edited.changed else done.unchanged).append(one.name)
        count += edited.to_replace
    return Imported(
        created=done.created, edited=done.edited, unchanged=done.unchanged, to_replace=count
    )


def _hold(names: Iterable[str]) -> set[str]:
    """Lock the models that are there, by Python's order of names, then all of their replicas.

    Edited one after the other they would lock replicas model by model, across that order.
    """
    rows = ModelLoadInfo.objects.filter(pk__in=names).order_by(Collate("model_name", "C"))
    known = set(rows.select_for_update().values_list("pk", flat=True))
    NodeModel.objects.filter(model_name__in=known).locked()
    return known


def _held(name: str, *, expected_version: int | None) -> ModelLoadInfo:
    model = ModelLoadInfo.objects.select_for_update().filter(pk=name.replace("\x00", "")).first()
    if model is None:
        raise NotFound(f"There is no model {name}.")
    if expected_version not in (None, model.version):
        raise PreconditionFailed(f"{name} was changed by somebody else; read it again.")
    return model


def _refuse_if_wanted(name: str, *, ruled: bool, replicas: int) -> None:
    if ruled:
        raise Conflict(f"{name} has a scheduling rule; delete that first, or delete by force.")
    if replicas:
        raise Conflict(
            f"{name} has {replicas} replica{'' if replicas == 1 else 's'}; "
            "unload them first, or delete by force."
        )


def _columns(definition: Definition) -> dict[str, Any]:
    return {
        "backend": definition.backend,
        "options": definition.options,
        "size_bytes": definition.size_bytes,
        "vram_bytes": definition.vram_bytes,
        "concurrency_group": definition.concurrency_group,
        "config_revision": definition.revision,
    }


def _told(definition: Definition) -> dict[str, Any]:
    """For the event: what differs is found by whoever reads it."""
    return _columns(definition)


def _numbered(place: int, document: object) -> Definition:
    try:
        return Definition.of(document)
    except InvalidInput as refusal:
        raise InvalidInput(f"Model {place}: {refusal}") from refusal


def _refuse_twice(wanted: Iterable[Definition]) -> None:
    seen: set[str] = set()
    for one in wanted:
        if one.name in seen:
            raise InvalidInput(f"{one.name} stands in the list twice.")
        seen.add(one.name)
