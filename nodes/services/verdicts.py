"""Carries out a sweep's plan: a few statements, however many nodes it names."""

import logging
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.models import Case, DateTimeField, F, Func, Value, When

from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.querysets import BackendNodeQuerySet
from nodes.services import announce, events, flapping, replicas
from nodes.states import LIVENESS_MOVES, Liveness, Severity
from nodes.sweeping import Knobs, SweepPlan, Watched

log = logging.getLogger(__name__)


def carry_out(plan: SweepPlan, *, now: datetime, knobs: Knobs) -> None:
    """Write the verdicts and their events; the caller holds the rows and the transaction."""
    drafts = [
        *_about_holding(plan, now=now),
        *_take_offline(plan, now=now, knobs=knobs),
        *_bring_back(plan, now=now, knobs=knobs),
        *_quarantine(plan, now=now, knobs=knobs),
        *_release(plan, now=now),
    ]
    if drafts:
        events.record_all(drafts)
        log.info("sweep changed something", extra=dict(Counter(draft.kind for draft in drafts)))


def _about_holding(plan: SweepPlan, *, now: datetime) -> list[ClusterEvent]:
    old, new = plan.before.hold, plan.memory.hold
    if plan.hold_began and new:
        # Every new cluster has a first sweep; the other reasons are worth a look
        first = plan.before.last_sweep_at is None
        severity = Severity.INFO if first else Severity.ATTENTION
        return [_draft("cluster.holding_started", now=now, reason=new.reason, severity=severity)]
    if plan.hold_ended and old:
        reason = f"Held since {old.since:%H:%M:%S} UTC. {plan.waiting} nodes are still silent."
        return [_draft("cluster.holding_ended", now=now, reason=reason)]
    return []


def _take_offline(plan: SweepPlan, *, now: datetime, knobs: Knobs) -> list[ClusterEvent]:
    if not plan.offline:
        return []
    limit = knobs.stale_after.total_seconds()
    _able_to_become(Liveness.OFFLINE, plan.offline).update(
        liveness=Liveness.OFFLINE,
        liveness_changed_at=now,
        liveness_reason=f"No heartbeat for more than {limit:.0f} s.",
        updated_at=now,
    )
    doomed = NodeModel.objects.filter(node__in=[node.id for node in plan.offline])
    lost = Counter(
        row.node_id for row in replicas.lose(doomed, reason="Its node went offline.", now=now)
    )
    return [
        _draft(
            "node.went_offline",
            now=now,
            node=node,
            reason=f"No heartbeat for {(now - node.last_heartbeat).total_seconds():.0f} s.",
            severity=Severity.ATTENTION if node.approved else Severity.INFO,
            before={"liveness": node.liveness},
            after={"liveness": Liveness.OFFLINE, "replicas_lost": lost[node.id]},
        )
        for node in plan.offline
    ]


def _bring_back(plan: SweepPlan, *, now: datetime, knobs: Knobs) -> list[ClusterEvent]:
    if not plan.recovered:
        return []
    _able_to_become(Liveness.HEALTHY, plan.recovered).update(
        liveness=Liveness.HEALTHY,
        liveness_changed_at=now,
        liveness_reason="",
        recoveries=_one_more(now, knobs),
        updated_at=now,
    )
    for node in plan.recovered:
        if node.approved and node not in plan.quarantined:
            announce.capacity_changed(node.id)
    return [
        _draft(
            "node.recovered",
            now=now,
            node=node,
            before={"liveness": node.liveness},
            after={"liveness": Liveness.HEALTHY},
        )
        for node in plan.recovered
    ]


def _one_more(now: datetime, knobs: Knobs) -> Case:
    """The latest recoveries with this one; an unanswered command (unhealthy) is no flap."""
    longer = Func(
        Value(now),
        F("recoveries")[: knobs.flap_limit],
        function="array_prepend",
        output_field=ArrayField(DateTimeField()),
    )
    return Case(When(liveness=Liveness.OFFLINE, then=longer), default=F("recoveries"))


def _quarantine(plan: SweepPlan, *, now: datetime, knobs: Knobs) -> list[ClusterEvent]:
    if not plan.quarantined:
        return []
    until = now + knobs.quarantine_for
    reason = flapping.reason(knobs.flap_limit, knobs.flap_window)
    _rows(plan.quarantined).update(
        quarantined_until=until, quarantine_reason=reason, updated_at=now
    )
    return [
        _draft(
            "node.quarantined",
            now=now,
            node=node,
            reason=reason,
            severity=Severity.ATTENTION,
            before={"quarantined_until": node.quarantined_until},
            after={"quarantined_until": until},
        )
        for node in plan.quarantined
    ]


def _release(plan: SweepPlan, *, now: datetime) -> list[ClusterEvent]:
    if not plan.released:
        return []
    _rows(plan.released).update(quarantined_until=None, quarantine_reason="", updated_at=now)
    for node in plan.released:
        announce.capacity_changed(node.id)
    return [
        _draft("node.released", now=now, node=node, reason="Its quarantine has passed.")
        for node in plan.released
    ]


def _able_to_become(target: Liveness, nodes: Iterable[Watched]) -> BackendNodeQuerySet:
    sources = [state for state, targets in LIVENESS_MOVES.items() if target in targets]
    return _rows(nodes).filter(liveness__in=sources)


def _rows(nodes: Iterable[Watched]) -> BackendNodeQuerySet:
    return BackendNode.objects.filter(pk__in=[node.id for node in nodes])


def _draft(
    kind: str, *, now: datetime, node: Watched | None = None, **details: Any
) -> ClusterEvent:
    subject = node.name if node else "cluster"
    event = events.build(kind, actor=events.SYSTEM, now=now, subject=subject, **details)
    event.node_id = node.id if node else None
    return event
