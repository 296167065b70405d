"""The health sweep: look once, decide once, write in bulk."""

from datetime import datetime

from django.conf import settings
from django.db import transaction

from clustermgr.conf import ClusterSettings
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.locks import LockKey, try_lock
from nodes import snapshot
from nodes.models import BackendNode, ClusterState
from nodes.services import announce, events, verdicts
from nodes.sweeping import Knobs, SweepPlan, View, decide


@transaction.atomic
def sweep(*, now: datetime) -> SweepPlan | None:
    """Judge every node once; None when another process is at it.

    A doubled tick is harmless: the second sees what the first wrote, and no time has passed
    that would allow it more.
    """
    if not try_lock(LockKey.SWEEP_STALE):
        return None
    knobs = _knobs(settings.CLUSTER)
    plan = decide(_look(now, knobs), now=now, knobs=knobs)
    if plan.touched:
        plan = plan.among(snapshot.held(plan.touched))
    _remember(plan)
    verdicts.carry_out(plan, now=now, knobs=knobs)
    return plan


@transaction.atomic
def release_quarantine(node: BackendNode, *, by: str, now: datetime) -> None:
    """Let a flapping node work again, with a clean slate: whoever does it has looked at it."""
    held = BackendNode.objects.filter(pk=node.pk, quarantined_until__isnull=False)
    if not held.update(quarantined_until=None, quarantine_reason="", recoveries=[], updated_at=now):
        raise InvalidMove(f"{node} is not quarantined.")
    events.record(
        "node.released",
        actor=by,
        now=now,
        node=node,
        before={"quarantined_until": node.quarantined_until},
        after={"quarantined_until": None},
    )
    announce.capacity_changed(node.pk)


def _knobs(cluster: ClusterSettings) -> Knobs:
    return Knobs(
        stale_after=cluster.heartbeat_stale_after,
        every=cluster.sweep_every,
        hold_fraction=cluster.sweep_hold_fraction,
        hold_minimum=cluster.sweep_hold_minimum,
        offline_per_second=cluster.offline_per_second,
        offline_burst=cluster.offline_burst,
        flap_limit=cluster.flap_limit,
        flap_window=cluster.flap_window,
        quarantine_for=cluster.quarantine_for,
    )


def _look(now: datetime, knobs: Knobs) -> View:
    view = snapshot.of_sweep(now=now, stale_after=knobs.stale_after)
    while view is None:  # a new database: under the lock nobody else makes the row
        ClusterState.objects.create(offline_allowance=knobs.offline_burst)
        view = snapshot.of_sweep(now=now, stale_after=knobs.stale_after)
    return view


def _remember(plan: SweepPlan) -> None:
    hold = plan.memory.hold
    written = ClusterState.objects.filter(sweep_fence=plan.before.fence).update(
        last_sweep_at=plan.memory.last_sweep_at,
        holding_since=hold.since if hold else None,
        holding_until=hold.until if hold else None,
        holding_reason=hold.reason if hold else "",
        offline_allowance=plan.memory.allowance,
        sweep_fence=plan.memory.fence,
    )
    if not written:
        raise RuntimeError("somebody swept although we hold the lock: nothing was written")
