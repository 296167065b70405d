"""Rules that cannot be kept: since when, why, and when somebody tries again."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Case, Value, When

from nodes.models import ClusterEvent
from nodes.services import events
from nodes.states import Severity
from scheduling.models import ModelSchedulingConfig, PlacementDecision
from scheduling.planning.plans import Plan, Starved

FIELDS = ("unsatisfiable_since", "unsatisfiable_until", "unsatisfiable_reason")


def note(plan: Plan, *, now: datetime) -> None:
    """Remember what a plan says of starving rules; nothing new writes nothing."""
    if not plan.starved and not plan.recovered:
        return
    names = [*(one.model for one in plan.starved), *plan.recovered]
    rules = {
        rule.model_name: rule for rule in ModelSchedulingConfig.objects.filter(model_name__in=names)
    }
    starved = [one for one in plan.starved if one.model in rules]
    news = [one for one in starved if rules[one.model].unsatisfiable_reason != one.reason]
    changed = [rules[one.model] for one in starved if _starve(rules[one.model], one)]
    back = [rules[name] for name in plan.recovered if name in rules]
    drafts = [*(_told(one, now=now) for one in starved if one.news), *_recovered(back, now=now)]
    for rule in back:
        _write(rule, (None, None, ""))
    ModelSchedulingConfig.objects.bulk_update([*changed, *back], FIELDS)
    PlacementDecision.objects.bulk_create(_decision(one, now=now) for one in news)
    events.record_all(drafts)


def try_again(*, now: datetime) -> int:
    """End every pause: something new may fit. How many rules starve, in one statement.

    When it began stays known, and that it was told: a pause that is over is not none.
    """
    starving = ModelSchedulingConfig.objects.filter(unsatisfiable_since__isnull=False)
    over = Case(When(unsatisfiable_until__gt=now, then=Value(now)), default="unsatisfiable_until")
    return starving.update(unsatisfiable_until=over)


def _starve(rule: ModelSchedulingConfig, one: Starved) -> bool:
    return _write(rule, (one.since, one.until, one.reason))


def _write(rule: ModelSchedulingConfig, values: tuple[Any, ...]) -> bool:
    before = tuple(getattr(rule, name) for name in FIELDS)
    for name, value in zip(FIELDS, values, strict=True):
        setattr(rule, name, value)
    return before != values


def _told(one: Starved, *, now: datetime) -> ClusterEvent:
    return events.build(
        "rule.starved",
        actor=events.SYSTEM,
        now=now,
        subject=one.model,
        reason=f"{one.reason} To mend it: {one.smallest_fix}.",
        after={"missing": one.missing},
        severity=Severity.ATTENTION,
    )


def _recovered(rules: Sequence[ModelSchedulingConfig], *, now: datetime) -> list[ClusterEvent]:
    return [
        events.build(
            "rule.recovered",
            actor=events.SYSTEM,
            now=now,
            subject=rule.model_name,
            before={"reason": rule.unsatisfiable_reason},
        )
        for rule in rules
        if rule.unsatisfiable_until is not None  # else nobody was told
    ]


def _decision(one: Starved, *, now: datetime) -> PlacementDecision:
    return PlacementDecision(
        at=now,
        model_name=one.model,
        cause=one.cause,
        summary=one.reason,
        smallest_fix=one.smallest_fix,
        verdicts=[verdict.as_json() for verdict in one.verdicts],
    )
