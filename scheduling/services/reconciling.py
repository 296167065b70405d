"""The tick: look once, decide once, write intents. What was decided is done by others."""

from collections.abc import Iterable
from datetime import datetime

from django.conf import settings
from django.db import transaction

from clustermgr.conf import ClusterSettings
from clustermgr.lib.locks import LockKey, try_lock
from clustermgr.lib.queue import after_commit
from nodes.services import events
from scheduling import snapshot
from scheduling.models import LoadJob
from scheduling.planning import deciding
from scheduling.planning.plans import Plan
from scheduling.planning.views import Knobs
from scheduling.services import hunger, intents, jobs, ringing


@transaction.atomic
def tick(*, now: datetime) -> Plan | None:
    """Bring what runs closer to what should; None when another process is at it.

    A doubled tick is harmless: the second sees the jobs of the first. Eight statements at most,
    however large the cluster and however much is decided.
    """
    if not try_lock(LockKey.RECONCILE):
        return None
    view = snapshot.take(now=now)
    plan = deciding.plan(view, now=now, knobs=knobs(settings.CLUSTER))
    by = events.SYSTEM
    intents.load(plan.place, by=by, now=now)
    intents.let_go(plan.unload, retire=plan.retire, rolled=plan.rolled, by=by, now=now)
    hunger.note(plan, view=view, now=now)
    if plan.cancel:
        after_commit("scheduling.give_up", [(one.job, one.reason) for one in plan.cancel])
    return plan


def give_up(loads: Iterable[tuple[int, str]], *, now: datetime) -> None:
    """End loads that a plan has no use for, each for its reason.

    Each on its own and after the plan: a load is ended under locks of its own order. If nobody
    hears of it, the next plan says so again.
    """
    reasons = dict(loads)
    rows = LoadJob.objects.filter(pk__in=reasons).select_related("node").order_by("pk")
    ended = [jobs.cancel(job, reasons[job.pk], now=now) for job in rows]
    if any(ended):
        ringing.reconcile_soon()  # where nothing ran yet, the slot is free for who waits for it


def knobs(cluster: ClusterSettings) -> Knobs:
    return Knobs(
        idle_after=cluster.idle_after,
        starved_after=cluster.starved_after,
        starved_pause=cluster.starved_pause,
    )
