"""Replicas nobody wants any more: loads are given up, processes stopped, each exactly."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import jobs, reserving, ringing, unloading

POLL = 0.1  # seconds


def gone(model_name: str, *, node: UUID, within: timedelta) -> bool:
    """Wait a moment until nothing of a model is left on a node; False when the time is up.

    Call it outside any transaction: what others write would never be seen inside one.
    """
    rows = NodeModel.objects.filter(model_name=model_name, node=node)
    until = time.monotonic() + within.total_seconds()
    while (left := rows.exists()) and time.monotonic() < until:
        time.sleep(POLL)
    return not left


@transaction.atomic
def stop_all(
    model_name: str,
    *,
    by: str,
    now: datetime,
    node: UUID | None = None,
    index: int | None = None,
    force: bool = False,
) -> int:
    """Unload a model, everywhere or in one place; says how many. All of them or none.

    Refused while one of them answers requests, unless by `force`.
    """
    where = {
        **({"node": node} if node is not None else {}),
        **({"replica_index": index} if index is not None else {}),
    }
    active = LoadJob.objects.active().filter(model_name=model_name, **where)
    under_way = list(active.select_related("node").order_by("id"))
    held = _hold(model_name, under_way)
    given_up = [jobs.cancel(job, f"Unloaded by {by}.", now=now, by=by) for job in under_way]
    loaded = NodeModel.objects.filter(pk__in=held, state=ReplicaState.LOADED, **where)
    stopped = [
        unloading.unload_now(replica, by=by, now=now, force=force)
        for replica in loaded.select_related("node").order_by("id")
    ]
    ringing.reconcile_soon()  # what a rule wants comes again, elsewhere if it can
    return sum(given_up) + len(stopped)


def _hold(model_name: str, loads: Sequence[LoadJob]) -> list[UUID]:
    """Lock everything of the model that may change, in the order of `jobs`; its replicas' ids.

    Load after load and replica after replica would lock across that order, and deadlock with
    requests, drains and whoever renews leases.
    """
    reserving.hold({job.node_id for job in loads})
    held = NodeModel.objects.filter(model_name=model_name).locked()
    rows = LoadJob.objects.filter(pk__in=[job.pk for job in loads]).order_by("pk")
    list(rows.select_for_update(no_key=True, of=("self",)).values_list("pk"))
    return held
