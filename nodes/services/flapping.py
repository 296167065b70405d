"""Machines that come and go: after too many returns they get nothing new for a while."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from nodes.models import BackendNode
from nodes.services import events
from nodes.states import Severity


def columns_of_return(node: BackendNode, *, now: datetime) -> dict[str, Any]:
    """What to write about a node that comes back by registering; the sweep has its own way.

    A return too many puts it into quarantine.
    """
    cluster = settings.CLUSTER
    returns = [now, *node.recoveries][: cluster.flap_limit + 1]
    if sum(now - moment <= cluster.flap_window for moment in returns) < cluster.flap_limit:
        return {"recoveries": returns}
    return {
        "recoveries": returns,
        "quarantined_until": now + cluster.quarantine_for,
        "quarantine_reason": reason(cluster.flap_limit, cluster.flap_window),
    }


def remember(node: BackendNode, *, before: datetime | None, now: datetime) -> None:
    """Write down a quarantine that `columns_of_return` began."""
    events.record(
        "node.quarantined",
        actor=events.SYSTEM,
        now=now,
        node=node,
        reason=node.quarantine_reason,
        severity=Severity.ATTENTION,
        before={"quarantined_until": before},
        after={"quarantined_until": node.quarantined_until},
    )


def reason(limit: int, window: timedelta) -> str:
    minutes = window.total_seconds() / 60
    return f"It comes and goes: {limit} times back within {minutes:g} min."
