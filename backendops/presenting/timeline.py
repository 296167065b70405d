"""What happened to an operation and, node by node, to its ops; newest first."""

from dataclasses import dataclass

from django.db.models import TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from backendops.models import Operation, OperationShare
from nodes.models import ClusterEvent
from nodes.presenting.words import in_words
from nodes.states import Severity

MOST = 50
WORDS = {
    "operation.requested": "Ordered",
    "operation.cancelled": "Cancelled",
    "operation.acknowledged": "Dismissed",
    "op.failed": "Failed, to be tried again",
    "op.died": "Given up",
    "op.cancelled": "Cancelled",
    "op.redriven": "Put back into the queue",
    "op.discarded": "Discarded",
    "op.nudged": "Told to try now",
    "op.checked": "Looked at",
    "backend.installed": "Installed",
    "backend.reinstalled": "Reinstalled",
    "backend.upgraded": "Upgraded",
    "backend.deleted": "Deleted",
    "backend.stopped": "Stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    event: ClusterEvent
    what: str
    node: str  # empty: it is about the whole operation
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    moments: list[Moment]
    cut: bool  # there is more than is told


def timeline(operation: Operation) -> Timeline:
    """Two queries, however many nodes; an op that serves two operations is told in both."""
    # By subject first: that is what the events are indexed by
    whole = ClusterEvent.objects.filter(
        subject=str(operation)[:255], after__operation=str(operation.pk)
    )
    shares = OperationShare.objects.filter(operation=operation)
    ops = shares.annotate(name=Cast("op_id", TextField())).values("name")
    parts = ClusterEvent.objects.filter(after__has_key="op").annotate(op=KT("after__op"))
    found = [
        *(_moment(event, node="") for event in whole[: MOST + 1]),
        *(_moment(event, node=event.subject) for event in parts.filter(op__in=ops)[: MOST + 1]),
    ]
    found.sort(key=lambda one: one.event.pk, reverse=True)
    return Timeline(moments=found[:MOST], cut=len(found) > MOST)


def _moment(event: ClusterEvent, *, node: str) -> Moment:
    return Moment(
        event=event,
        what=WORDS.get(event.kind) or in_words(event.kind),
        node=node,
        urgent=event.severity == Severity.ATTENTION,
    )
