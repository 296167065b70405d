"""Rules that cannot be kept: since when, why, and when somebody tries again."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from clustermgr.lib.context import request_id
from clustermgr.lib.text import sentence
from nodes.services import events
from nodes.states import Severity
from scheduling import statements
from scheduling.planning.plans import Plan, Starved
from scheduling.planning.views import ClusterView, RuleView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is written about one rule; the fields are statements.HUNGER's arrays, in its order."""

    models: str
    seen: str
    capacities: int
    sinces: datetime | None = None
    untils: datetime | None = None
    reasons: str = ""
    causes: str = ""  # empty: no decision
    fixes: str = ""
    verdicts: str = "[]"
    kinds: str = ""  # empty: no event
    severities: str = Severity.INFO.value
    sentences: str = ""
    befores: str = "{}"
    afters: str = "{}"


def note(plan: Plan, *, view: ClusterView, now: datetime) -> None:
    """Remember what a plan says of starving rules: one statement, and none for nothing new."""
    rules = {one.name: one.rule for one in view.models if one.rule is not None}
    told = [*_starving(plan.starved, rules), *_recovered(plan.recovered, rules)]
    if not told:
        return
    columns = zip(*map(astuple, told), strict=True)
    values: dict[str, Any] = dict(zip(_Told.__slots__, map(list, columns), strict=True))
    common: dict[str, Any] = {"by": events.SYSTEM, "now": now, "request": request_id.get()}
    with connection.cursor() as cursor:
        cursor.execute(statements.HUNGER, {**values, **common})


def capacity_came() -> bool:
    """End every pause: something new may fit. Whether any rule starves.

    Call it after the commit. A thousand nodes may come together, so no rule is written: a pause
    remembers which capacity it was begun for, and one that a tick begins after a look from before
    this is over as well.
    """
    with connection.cursor() as cursor:
        cursor.execute(statements.CAPACITY_CAME)
        _, starving = cursor.fetchone()
    return bool(starving)


def _starving(starved: Iterable[Starved], rules: Mapping[str, RuleView]) -> Iterator[_Told]:
    for one in starved:
        rule = rules.get(one.model)
        if rule is None or _is_known(rule, one):
            continue
        news = rule.unsatisfiable_reason != one.reason
        yield _Told(
            models=one.model,
            seen=rule.seen,
            capacities=rule.capacity,
            sinces=one.since,
            untils=one.until,
            reasons=one.reason,
            causes=one.cause if news else "",
            fixes=one.smallest_fix,
            verdicts=json.dumps([verdict.as_json() for verdict in one.verdicts] if news else []),
            **(_told(one) if one.news else {}),
        )


def _is_known(rule: RuleView, one: Starved) -> bool:
    known = rule.unsatisfiable_since, rule.unsatisfiable_until, rule.unsatisfiable_reason
    return known == (one.since, one.until, one.reason)


def _told(one: Starved) -> dict[str, Any]:
    return {
        "kinds": "rule.starved",
        "severities": Severity.ATTENTION.value,
        "sentences": sentence(f"{one.reason} To mend it: {one.smallest_fix}.", limit=events.REASON),
        "afters": json.dumps({"missing": one.missing}),
    }


def _recovered(names: Iterable[str], rules: Mapping[str, RuleView]) -> Iterator[_Told]:
    for name in names:
        rule = rules[name]
        heard = rule.unsatisfiable_until is not None  # else nobody was told that it starved
        yield _Told(
            models=name,
            seen=rule.seen,
            capacities=rule.capacity,
            kinds="rule.recovered" if heard else "",
            befores=json.dumps({"reason": rule.unsatisfiable_reason}),
        )
