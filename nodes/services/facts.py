"""Writes the facts of a node: under its lock, and only if they still are what was thought.

Lock order everywhere: join token, then nodes by id, then replicas by id.
"""

from datetime import datetime
from typing import Any

from django.db.models import F, Q

from clustermgr.lib.errors import InvalidMove
from nodes.models import BackendNode
from nodes.querysets import BackendNodeQuerySet

NO_STOP: dict[str, Any] = {"stop_ordered_at": None, "stop_told_at": None}
# What a drain consists of; it ends as a whole.
NO_DRAIN: dict[str, Any] = {
    "drain_requested_at": None,
    "drain_requested_by": "",
    "drain_by_worker": False,
    "drain_reason": "",
    "drain_deadline": None,
    "drained_at": None,
    **NO_STOP,
}


def edited(now: datetime) -> dict[str, Any]:
    """What every edit leaves behind: its time, and a new ETag."""
    return {"updated_at": now, "version": F("version") + 1}


def lockable() -> BackendNodeQuerySet:
    """Nodes, to be held until the end of this transaction.

    "No key": replicas and events that point at a held node may be inserted meanwhile.
    """
    return BackendNode.objects.select_for_update(no_key=True, of=("self",))


def hold(node: BackendNode) -> None:
    """Lock `node` and bring it up to date: from here on it is what it says."""
    node.refresh_from_db(from_queryset=lockable())


def hold_present(node: BackendNode) -> None:
    """Hold a node that takes orders; one that was sent away takes none."""
    hold(node)
    if node.retired_at is not None:
        raise InvalidMove(f"{node.name} is retired; readmit it first.")


def write(node: BackendNode, *, when: Q, now: datetime, **changes: Any) -> bool:
    """Write `changes` if `when` holds in the database; tell whether it did."""
    rows = BackendNode.objects.filter(when, pk=node.pk).update(**changes, **edited(now))
    node.refresh_from_db()
    return bool(rows)
