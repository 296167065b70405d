"""Every way in which an op changes its state: guarded, numbered, and never twice.

A change names the states it may start from (states.OP_MOVES) and, where the op is held, the
fence it was claimed under. Zero rows changed means that somebody else was first.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Func

from backendops.models import PendingBackendOp
from backendops.querysets import PendingBackendOpQuerySet
from backendops.states import OP_MOVES, OpState


class _NextChange(Func):
    """The next number of the sequence that orders all changes."""

    template = "nextval('backendops_change')"
    output_field = models.BigIntegerField()


NEXT_CHANGE: Any = _NextChange()
NO_CLAIM: dict[str, Any] = {"lease_until": None, "claimed_by": "", "sent_at": None}
NO_PROGRESS: dict[str, Any] = {
    "phase": "",
    "file_name": "",
    "current_bytes": 0,
    "total_bytes": 0,
    "percentage": 0.0,
    "progress_seq": 0,
    "progress_at": None,
    "rate": 0.0,
}


def able_to_become(target: OpState) -> PendingBackendOpQuerySet:
    """The ops that may move there."""
    sources = [state for state, targets in OP_MOVES.items() if target in targets]
    return PendingBackendOp.objects.filter(state__in=sources)


def change(rows: PendingBackendOpQuerySet, to: OpState, *, now: datetime, **columns: Any) -> int:
    """Move those of `rows` that may move to `to`; the number that did."""
    legal = rows & able_to_become(to)
    return legal.update(state=to, changed_at=now, change=NEXT_CHANGE, **columns)


def requeue(ids: Iterable[int], *, now: datetime) -> int:
    """Due now, with a clean slate: somebody asked for it again."""
    rows = PendingBackendOp.objects.filter(pk__in=list(ids))
    slate: dict[str, Any] = {"attempts": 0, "due_at": now, "note": "", "finished_at": None}
    already = rows.filter(state=OpState.QUEUED).update(changed_at=now, change=NEXT_CHANGE, **slate)
    again = {**slate, **NO_CLAIM, **NO_PROGRESS, "generation": F("generation") + 1, "before": {}}
    ended = rows.filter(state__in=[OpState.FAILED, OpState.DEAD])
    return already + change(ended, OpState.QUEUED, now=now, **again)


def supersede(ops: Sequence[PendingBackendOp], *, by: str, now: datetime) -> int:
    """A contradicting order takes the place of these, which nobody has begun."""
    rows = PendingBackendOp.objects.filter(pk__in=[op.pk for op in ops])
    note = f"Superseded by {by}."[:500]
    return change(rows, OpState.SUPERSEDED, now=now, finished_at=now, note=note)
