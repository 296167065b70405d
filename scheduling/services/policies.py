"""Scheduling rules: how many replicas of a model, and where."""

from datetime import datetime
from typing import Any

from django.db import transaction

from clustermgr.lib.errors import NotFound, PreconditionFailed
from nodes.services import events
from scheduling import rules
from scheduling.models import ModelSchedulingConfig
from scheduling.services import ringing

# An edit ends the pause: what could not be satisfied yesterday is another wish today
RETRY = {"unsatisfiable_since": None, "unsatisfiable_until": None, "unsatisfiable_reason": ""}
TOLD = (*rules.REPLACED, *rules.ROUTING, *rules.OURS)


def find(model_name: str) -> ModelSchedulingConfig:
    found = ModelSchedulingConfig.objects.filter(model_name=model_name.replace("\x00", "")).first()
    if found is None:
        raise NotFound(f"There is no scheduling rule for {model_name}.")
    return found


def put(
    document: object, *, by: str, now: datetime, expected_version: int | None = None
) -> ModelSchedulingConfig:
    """Create or change a rule as LocalAI's API does: see `rules` for what stays when left out."""
    model_name, columns = rules.read(document)
    return put_columns(model_name, columns, by=by, now=now, expected_version=expected_version)


@transaction.atomic
def put_columns(
    model_name: str,
    columns: rules.Columns,
    *,
    by: str,
    now: datetime,
    expected_version: int | None = None,
) -> ModelSchedulingConfig:
    """Write checked columns. Sent once more, a rule that waits is tried again at once."""
    rule = ModelSchedulingConfig(
        model_name=model_name, created_at=now, updated_at=now, updated_by=by, **columns
    )
    # First the row, then its lock: two who create the same rule meet here, not at a constraint
    ModelSchedulingConfig.objects.bulk_create([rule], ignore_conflicts=True)
    held = ModelSchedulingConfig.objects.select_for_update().get(model_name=model_name)
    if held.pk == rule.pk:
        _expect(expected_version, None, model_name)
        _remember("rule.created", held, by=by, now=now, before={})
        return held
    _expect(expected_version, held.version, model_name)
    return _change(held, columns, by=by, now=now)


@transaction.atomic
def delete(
    model_name: str, *, by: str, now: datetime, expected_version: int | None = None
) -> ModelSchedulingConfig | None:
    """Let go of a rule; replicas stay until something else needs their place. Absent: nothing."""
    name = model_name.replace("\x00", "")
    held = ModelSchedulingConfig.objects.select_for_update().filter(model_name=name).first()
    if held is None:
        return None
    _expect(expected_version, held.version, model_name)
    before = _told(held)
    ModelSchedulingConfig.objects.filter(pk=held.pk).delete()
    events.record("rule.deleted", actor=by, now=now, subject=model_name, before=before)
    ringing.reconcile_soon()
    return held


def _change(
    held: ModelSchedulingConfig, columns: rules.Columns, *, by: str, now: datetime
) -> ModelSchedulingConfig:
    before = _told(held)
    differs = any(getattr(held, column) != value for column, value in columns.items())
    if not differs and held.unsatisfiable_since is None and held.unsatisfiable_until is None:
        return held
    changes: dict[str, Any] = {**columns, **RETRY, "updated_at": now, "updated_by": by}
    changes["version"] = held.version + 1
    for column, value in changes.items():
        setattr(held, column, value)
    held.save(update_fields=list(changes))
    _remember("rule.changed" if differs else "rule.retried", held, by=by, now=now, before=before)
    return held


def _remember(
    kind: str, rule: ModelSchedulingConfig, *, by: str, now: datetime, before: dict[str, Any]
) -> None:
    events.record(
        kind, actor=by, now=now, subject=rule.model_name, before=before, after=_told(rule)
    )
    ringing.reconcile_soon()


def _told(rule: ModelSchedulingConfig) -> dict[str, Any]:
    return {column: getattr(rule, column) for column in TOLD}


def _expect(expected: int | None, version: int | None, model_name: str) -> None:
    if expected not in (None, version):
        raise PreconditionFailed(
            f"The rule of {model_name} was changed by somebody else; read it again."
        )
