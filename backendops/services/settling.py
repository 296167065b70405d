"""How an op ends, or goes on: each only if it is still the claim that it was decided for."""

import logging
import random
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from backendops import backoff, verifying
from backendops.models import PendingBackendOp
from backendops.querysets import PendingBackendOpQuerySet
from backendops.services import changes
from backendops.states import OpState, Verb
from nodes.services import events
from nodes.states import Severity
from nodes.wire import InstalledBackend

log = logging.getLogger(__name__)

GIVEN_UP = "cancelled"  # our worker's words for: as you wished
DID = {
    Verb.INSTALL: "backend.installed",
    Verb.REINSTALL: "backend.reinstalled",
    Verb.UPGRADE: "backend.upgraded",
    Verb.DELETE: "backend.deleted",
    Verb.STOP: "backend.stopped",
}


@transaction.atomic
def succeeded(
    op: PendingBackendOp,
    *,
    now: datetime,
    note: str = "",
    there: InstalledBackend | None = None,
) -> bool:
    """It is done, and the node's inventory says so; `there` is what it lists now."""
    told: dict[str, Any] = {"percentage": 100.0, "last_error": "", "rate": 0.0}
    told["after"] = {} if op.verb == Verb.STOP else verifying.evidence(there)
    if not _end(op, OpState.SUCCEEDED, now=now, note=note, **told):
        return _cancelled_meanwhile(op, "The node had finished it.", now=now)
    _remember(DID[Verb(op.verb)], op, now=now)
    return True


@transaction.atomic
def failed(op: PendingBackendOp, error: str, *, now: datetime, for_good: bool = False) -> bool:
    """The node said no, or is gone: tried again later, or a dead letter if it is enough."""
    attempts = op.attempts + 1
    told: dict[str, Any] = {"attempts": attempts, "last_error": error[:4000], "rate": 0.0}
    if for_good or attempts >= backoff.LIMIT:
        if not _end(op, OpState.DEAD, now=now, **told):
            return _cancelled_meanwhile(op, _ending(error), now=now)
        _remember("op.died", op, now=now, reason=error, severity=Severity.ATTENTION)
        return True
    due = now + backoff.delay(attempts, jitter=random.random())
    if not _go_on(op, OpState.FAILED, now=now, due_at=due, **told):
        return _cancelled_meanwhile(op, _ending(error), now=now)
    if attempts == 1:  # the first tells; nine more events would say the same
        _remember("op.failed", op, now=now, reason=error)
    return True


@transaction.atomic
def unconfirmed(op: PendingBackendOp, why: str, *, now: datetime) -> bool:
    """It was sent and we do not know: not a failure. The inventory will tell."""
    cluster = settings.CLUSTER
    give_up = op.give_up_at or now + cluster.install_timeout
    told = {"note": why[:500], "give_up_at": give_up, "due_at": now + cluster.ops_check_every}
    return _go_on(op, OpState.UNCONFIRMED, now=now, **told) or _leave_cancelling(op, now=now)


@transaction.atomic
def put_back(
    op: PendingBackendOp,
    why: str,
    *,
    now: datetime,
    due_at: datetime,
    sent_at: datetime | None,
) -> bool:
    """Nothing happened, or asking again is harmless: due again, and no attempt is counted.

    `sent_at` is since when the node may be at it all the same; None: it never heard of it.
    """
    rows = _current(op)
    told: dict[str, Any] = {"lease_until": None, "claimed_by": "", "note": why[:500]}
    told["sent_at"] = sent_at
    if changes.change(rows, OpState.QUEUED, now=now, due_at=due_at, **told):
        return True
    if sent_at is None:
        return _cancelled_meanwhile(op, "The node was never told.", now=now)
    return _leave_cancelling(op, now=now)


@transaction.atomic
def cancelled(op: PendingBackendOp, outcome: str, *, now: datetime) -> bool:
    """The node has ended what was cancelled, one way or the other."""
    return _cancelled_meanwhile(op, outcome, now=now)


def still_unclear(op: PendingBackendOp, *, now: datetime) -> None:
    """Look again later."""
    due = now + settings.CLUSTER.ops_check_every
    _current(op).filter(state=op.state).update(due_at=due)


def _current(op: PendingBackendOp) -> PendingBackendOpQuerySet:
    return PendingBackendOp.objects.filter(pk=op.pk, fence=op.fence)


def _end(op: PendingBackendOp, to: OpState, *, now: datetime, note: str = "", **told: Any) -> bool:
    told |= {"lease_until": None, "finished_at": now, "due_at": None, "note": note[:500]}
    return bool(changes.change(_current(op), to, now=now, **told))


def _go_on(op: PendingBackendOp, to: OpState, *, now: datetime, **told: Any) -> bool:
    return bool(changes.change(_current(op), to, now=now, lease_until=None, **told))


def _leave_cancelling(op: PendingBackendOp, *, now: datetime) -> bool:
    """Nobody waits for the node any more; the next check finds out how it ended."""
    rows = _current(op).filter(state=OpState.CANCELLING)
    give_up = op.give_up_at or now + settings.CLUSTER.install_timeout
    return bool(rows.update(lease_until=None, due_at=now, give_up_at=give_up))


def _cancelled_meanwhile(op: PendingBackendOp, outcome: str, *, now: datetime) -> bool:
    """Somebody cancelled it while the node was at it: what became of it is recorded."""
    rows = _current(op).filter(state=OpState.CANCELLING)
    told_so_far = rows.values_list("note", flat=True).first() or ""
    by_whom = told_so_far.rpartition(" The node ")[0] or "Cancelled."
    note = f"{by_whom} {outcome}"[:500]
    told: dict[str, Any] = {"lease_until": None, "finished_at": now, "due_at": None, "note": note}
    if changes.change(rows, OpState.CANCELLED, now=now, **told):
        _remember("op.cancelled", op, now=now, reason=outcome)
        return True
    log.debug("too late to settle", extra={"op": op.pk, "fence": op.fence})
    return False


def _ending(error: str) -> str:
    return "The node gave it up." if error == GIVEN_UP else f"It had failed: {error}"


def _remember(
    kind: str,
    op: PendingBackendOp,
    *,
    now: datetime,
    reason: str = "",
    severity: Severity = Severity.INFO,
) -> None:
    events.record(
        kind,
        actor=events.SYSTEM,
        now=now,
        node=op.node,
        reason=reason,
        severity=severity,
        after={"verb": op.verb, "backend": op.backend, "op": op.pk, "attempts": op.attempts},
    )
