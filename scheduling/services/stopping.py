"""Replicas nobody wants any more: loads are given up, processes stopped, each exactly."""

import time
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import jobs, unloading

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
    # In the order in which their rows are locked one by one
    under_way = LoadJob.objects.active().filter(model_name=model_name, **where)
    given_up = [
        jobs.cancel(job, f"Unloaded by {by}.", now=now, by=by)
        for job in under_way.select_related("node").order_by("node_id", "id")
    ]
    loaded = NodeModel.objects.filter(
        model_name=model_name, state=ReplicaState.LOADED, **where
    ).select_related("node")
    stopped = [
        unloading.unload_now(replica, by=by, now=now, force=force)
        for replica in loaded.order_by("node_id", "id")
    ]
    return sum(given_up) + len(stopped)
