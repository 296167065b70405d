"""Many rows into one picture for a decision."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Func, IntegerField, JSONField, Subquery
from django.db.models.functions import JSONObject

from nodes.models import BackendNode, ClusterState
from nodes.states import Liveness
from nodes.sweeping import Hold, Memory, View, Watched

FIELDS = (
    "id",
    "name",
    "liveness",
    "approved_at",
    "left_at",
    "last_heartbeat",
    "liveness_changed_at",
    "recoveries",
    "quarantined_until",
)


def of_sweep(*, now: datetime, stale_after: timedelta) -> View | None:
    """The cluster as a sweep sees it, in one statement; None before the very first one.

    Of thousands of nodes only the suspects travel, packed into the row of the state. Two scans
    of the node table serve it: an index on `last_heartbeat` would cost every heartbeat more
    than it could save four times a minute.
    """
    # `Func`, where Django would know an aggregate and group by the columns of the order
    count = Func(F("pk"), function="COUNT", output_field=IntegerField())
    row = JSONObject(**{name: name for name in FIELDS})
    rows = Func(row, function="JSONB_AGG", output_field=JSONField())
    online = BackendNode.objects.approved().online()
    suspects = BackendNode.objects.suspects(now=now, stale_before=now - stale_after)
    state = ClusterState.objects.annotate(
        online=Subquery(online.order_by().values(count=count)),
        suspects=Subquery(suspects.order_by().values(rows=rows)),
    ).first()
    if state is None:
        return None
    nodes = tuple(_watched(row) for row in state.suspects or ())
    return View(nodes=nodes, online=state.online, memory=_memory(state))


def held(nodes: Iterable[Watched]) -> frozenset[Watched]:
    """Lock these rows; those that are as they were, and that nobody else is writing now.

    A row in somebody's hands is mostly a heartbeat on its way in: passing over it is right,
    and never waiting for one keeps the sweep out of every deadlock.
    """
    rows = BackendNode.objects.present().filter(pk__in=[node.id for node in nodes])
    locked = rows.order_by("pk").select_for_update(no_key=True, skip_locked=True)
    return frozenset(_watched(row) for row in locked.values(*FIELDS)) & frozenset(nodes)


def _memory(state: ClusterState) -> Memory:
    since = state.holding_since
    return Memory(
        last_sweep_at=state.last_sweep_at,
        hold=Hold(since=since, until=state.holding_until, reason=state.holding_reason)
        if since
        else None,
        allowance=state.offline_allowance,
        fence=state.sweep_fence,
    )


def _watched(row: Mapping[str, Any]) -> Watched:
    return Watched(
        id=UUID(str(row["id"])),
        name=row["name"],
        liveness=Liveness(row["liveness"]),
        approved=row["approved_at"] is not None,
        left=row["left_at"] is not None,
        last_heartbeat=_moment(row["last_heartbeat"]),
        liveness_changed_at=_moment(row["liveness_changed_at"]),
        recoveries=tuple(map(_moment, row["recoveries"])),
        quarantined_until=_moment(row["quarantined_until"]) if row["quarantined_until"] else None,
    )


def _moment(value: datetime | str) -> datetime:
    # Inside JSON, PostgreSQL writes ISO 8601 with all six digits
    return datetime.fromisoformat(value) if isinstance(value, str) else value
