"""The cluster's memory: one event for every change, in the change's own transaction."""

from datetime import datetime
from typing import Any

from clustermgr.lib.context import request_id
from nodes.models import BackendNode, ClusterEvent
from nodes.states import Severity


def record(
    kind: str,
    *,
    actor: str,
    now: datetime,
    node: BackendNode | None = None,
    subject: str = "",
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    severity: Severity = Severity.INFO,
) -> ClusterEvent:
    """Write down what `actor` did; call it inside the transaction that does it."""
    return ClusterEvent.objects.create(
        at=now,
        kind=kind,
        severity=severity,
        node=node,
        subject=(subject or (node.name if node else ""))[:255],
        actor=actor[:150],
        reason=reason,
        before=before or {},
        after=after or {},
        request_id=request_id.get(),
    )


def record_all(drafts: list[ClusterEvent]) -> None:
    """Write what happened to many at once, in one statement."""
    for draft in drafts:
        draft.request_id = request_id.get()
    ClusterEvent.objects.bulk_create(drafts)


def acknowledge(event: ClusterEvent, *, by: str, now: datetime) -> None:
    """Take an event off the attention list; it stays in the history."""
    ClusterEvent.objects.filter(pk=event.pk, acknowledged_at=None).update(
        acknowledged_at=now, acknowledged_by=by
    )
