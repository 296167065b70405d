"""The cluster's memory: one event for every change, in the change's own transaction."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict, Unpack

from clustermgr.lib.context import request_id
from clustermgr.lib.text import sentence
from nodes.models import BackendNode, ClusterEvent
from nodes.states import Severity

SYSTEM = "system"  # nobody asked: we found out ourselves
REASON = 1000  # characters; a worker's whole words are in what failed, and in its log


class Details(TypedDict, total=False):
    """What an event may tell besides what happened, who did it and when."""

    node: BackendNode | None
    subject: str  # the node's name unless said otherwise
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]
    severity: Severity


def by_worker(node: BackendNode) -> str:
    """How a worker is named where people are named; fits every `*_by` column."""
    return f"worker {node.name}"[:150]


def record(kind: str, *, actor: str, now: datetime, **details: Unpack[Details]) -> ClusterEvent:
    """Write down what `actor` did; call it inside the transaction that does it."""
    event = build(kind, actor=actor, now=now, **details)
    event.save(force_insert=True)
    return event


def record_all(events: Iterable[ClusterEvent]) -> None:
    """Write down many events at once, in one statement."""
    ClusterEvent.objects.bulk_create(events)


def build(kind: str, *, actor: str, now: datetime, **details: Unpack[Details]) -> ClusterEvent:
    """Put an event into words without saving it: for `record_all`."""
    node = details.get("node")
    subject = details.get("subject") or (node.name if node else "")
    return ClusterEvent(
        at=now,
        kind=kind,
        severity=details.get("severity", Severity.INFO),
        node=node,
        subject=subject[:255],
        actor=actor[:150],
        reason=sentence(details.get("reason", ""), limit=REASON),
        before=details.get("before", {}),
        after=details.get("after", {}),
        request_id=request_id.get(),
    )


def acknowledge(event: ClusterEvent, *, by: str, now: datetime) -> None:
    """Take an event off the attention list; it stays in the history."""
    ClusterEvent.objects.filter(pk=event.pk, acknowledged_at=None).update(
        acknowledged_at=now, acknowledged_by=by
    )
