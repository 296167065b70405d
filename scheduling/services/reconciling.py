"""The tick: look once, decide once, write intents. What was decided is done by others."""

from datetime import datetime

from django.conf import settings
from django.db import transaction

from clustermgr.conf import ClusterSettings
from clustermgr.lib.locks import LockKey, try_lock
from nodes.services import events
from scheduling import snapshot
from scheduling.planning import deciding
from scheduling.planning.plans import Plan
from scheduling.planning.views import Knobs
from scheduling.services import hunger, intents, rolling


@transaction.atomic
def tick(*, now: datetime) -> Plan | None:
    """Bring what runs closer to what should; None when another process is at it.

    A doubled tick is harmless: the second sees the jobs of the first.
    """
    if not try_lock(LockKey.RECONCILE):
        return None
    plan = deciding.plan(snapshot.take(), now=now, knobs=knobs(settings.CLUSTER))
    rolling.finish(plan.rolled, now=now)  # first: a model is locked before replicas
    intents.load(plan.place, by=events.SYSTEM, now=now)
    intents.unload(plan.unload, by=events.SYSTEM, now=now)
    intents.retire(plan.retire, by=events.SYSTEM, now=now)
    hunger.note(plan, now=now)
    return plan


def knobs(cluster: ClusterSettings) -> Knobs:
    return Knobs(
        idle_after=cluster.idle_after,
        starved_after=cluster.starved_after,
        starved_pause=cluster.starved_pause,
    )
