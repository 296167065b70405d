"""Waits a moment for an op or an operation, for callers who expect their answer at once."""

import time
from datetime import datetime, timedelta

from backendops.models import Operation, PendingBackendOp
from backendops.querysets import READY
from backendops.services import rollups
from backendops.services.rollups import Rollup
from backendops.states import OpState

POLL = 0.1  # seconds


def ended(op: PendingBackendOp, *, within: timedelta) -> OpState:
    """The state in which it ended or failed, else the one it is in when the time is up.

    Call it outside any transaction: what others write would never be seen inside one. An op
    whose node takes no orders now is not waited for.
    """
    rows = PendingBackendOp.objects.filter(pk=op.pk)
    until = time.monotonic() + within.total_seconds()
    state = OpState(rows.get().state)
    if not rows.filter(READY).exists():
        return state
    while _pending(state) and time.monotonic() < until:
        time.sleep(POLL)
        state = OpState(rows.get().state)
    return state


def _pending(state: OpState) -> bool:
    return state in (OpState.QUEUED, OpState.RUNNING)


def settled(operation: Operation, *, within: timedelta, now: datetime) -> Rollup:
    """The operation as soon as none of its nodes is at it, or as it is when the time is up."""
    began = time.monotonic()
    roll = _look(operation, now=now)
    while roll.moving and (passed := time.monotonic() - began) < within.total_seconds():
        time.sleep(POLL)
        roll = _look(operation, now=now + timedelta(seconds=passed))
    return roll


def _look(operation: Operation, *, now: datetime) -> Rollup:
    return rollups.rollups([operation], now=now)[operation.pk]
