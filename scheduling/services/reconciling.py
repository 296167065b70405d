"""The tick: look once, decide once, write intents. What was decided is done by others."""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from clustermgr.conf import ClusterSettings
from clustermgr.lib.locks import LockKey, try_lock
from nodes.services import events
from scheduling import snapshot
from scheduling.models import LoadJob
from scheduling.planning import deciding
from scheduling.planning.plans import Cancel, Plan
from scheduling.planning.views import Knobs
from scheduling.services import hunger, intents, jobs, rolling, tallying
from scheduling.states import Cause


def tick(*, now: datetime) -> Plan | None:
    """Bring what runs closer to what should; None when another process is at it.

    A doubled tick is harmless: the second sees the jobs of the first.
    """
    plan = _decide(now=now)
    if plan is not None and plan.cancel:
        _give_up(plan.cancel, now=now)
    return plan


@transaction.atomic
def _decide(*, now: datetime) -> Plan | None:
    if not try_lock(LockKey.RECONCILE):
        return None
    view = snapshot.take(now=now)
    plan = deciding.plan(view, now=now, knobs=knobs(settings.CLUSTER))
    rolling.finish(plan.rolled, now=now)  # first: a model is locked before replicas
    intents.load(plan.place, by=events.SYSTEM, now=now)
    relieved = [one.model for one in plan.place if one.cause == Cause.PRESSURE]
    if relieved:
        tallying.relieve(relieved)
    intents.unload(plan.unload, by=events.SYSTEM, now=now)
    intents.retire(plan.retire, by=events.SYSTEM, now=now)
    hunger.note(plan, view=view, now=now)
    return plan


def _give_up(loads: Sequence[Cancel], *, now: datetime) -> None:
    """Each on its own and after the plan: a load is ended under locks of its own order."""
    reasons = {one.job: one.reason for one in loads}
    for job in LoadJob.objects.filter(pk__in=reasons).select_related("node").order_by("pk"):
        jobs.cancel(job, reasons[job.pk], now=now)


def knobs(cluster: ClusterSettings) -> Knobs:
    return Knobs(
        idle_after=cluster.idle_after,
        starved_after=cluster.starved_after,
        starved_pause=cluster.starved_pause,
    )
