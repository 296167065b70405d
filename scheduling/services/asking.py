"""Questions about placement; nothing is changed by asking."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings

from clustermgr.lib.errors import NotFound
from nodes.states import ReplicaState
from scheduling import snapshot
from scheduling.planning import changes, deciding, explaining
from scheduling.planning.changes import Changes
from scheduling.planning.plans import Plan, Verdict
from scheduling.planning.standing import Standing
from scheduling.planning.views import ClusterView
from scheduling.planning.words import times
from scheduling.services.reconciling import knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Where a model stands, and what keeps it there."""

    model: str
    desired: int
    serving: int  # wherever they stand
    coming: int
    satisfied: bool
    reason: str  # one sentence
    smallest_fix: str
    verdicts: tuple[Verdict, ...]  # every node, those that fit first

    def as_json(self) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "desired": self.desired,
            "serving": self.serving,
            "loading": self.coming,
            "satisfied": self.satisfied,
            "reason": self.reason,
            "smallest_fix": self.smallest_fix,
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A replica on a machine that is supposed to be emptied, or gone."""

    node: str
    model: str
    index: int
    in_flight: int
    managed: bool  # a rule asks for replicas of its model


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a change would make different."""

    plan: Plan
    anyway: Plan  # what would be decided without it
    leaving: tuple[Leaving, ...]


def why(model_name: str, *, now: datetime) -> Why:
    """Why a model has the replicas it has, as if somebody tried this moment."""
    view, turns = snapshot.take(now=now), knobs(settings.CLUSTER)
    draft = deciding.begin(view, now=now, knobs=turns)
    standing = draft.standings.get(model_name)
    if standing is None:
        raise NotFound(f"There is no model {model_name}, nor a rule for it.")
    # Two plans: what is waited for, and what would happen without waiting
    patient = deciding.plan(view, now=now, knobs=turns)
    eager = deciding.plan(changes.eager(view), now=now, knobs=turns)
    reason, fix = _answer(model_name, patient, eager)
    reason = reason or _unlucky(standing)
    meant = len(draft.board.meant(standing.wish)) if standing.wish else 0
    desired = meant if standing.rule.spread_all else standing.rule.min_replicas
    return Why(
        model=model_name,
        desired=desired,
        serving=standing.taking,
        coming=len(draft.board.loads[model_name]) - len(standing.useless),
        satisfied=not reason,
        reason=reason or _contented(standing, desired),
        smallest_fix=fix,
        verdicts=explaining.everywhere(draft.board, standing.wish) if standing.wish else (),
    )


def _unlucky(standing: Standing) -> str:
    """Nobody asks for a number of it; but who asked last for the model got none."""
    model = standing.model
    if not model.failures or standing.taking:
        return ""
    return f"It failed {times(model.failures)}, last with: {model.last_error or 'no reason'}."


def what_if(supposed: Changes, *, now: datetime) -> Plan:
    """What one tick would decide if the cluster were so."""
    return _suppose(_now(supposed, now=now), supposed, now=now)


def compare(supposed: Changes, *, now: datetime) -> Compared:
    """What one tick would decide if the cluster were so, beside what it decides as it is."""
    view = _now(supposed, now=now)
    return Compared(
        plan=_suppose(view, supposed, now=now),
        anyway=deciding.plan(changes.eager(view), now=now, knobs=knobs(settings.CLUSTER)),
        leaving=_leaving(view, {*supposed.drain, *supposed.remove}),
    )


def _suppose(view: ClusterView, supposed: Changes, *, now: datetime) -> Plan:
    other = changes.supposed(view, supposed, now=now)
    plan = deciding.plan(other, now=now, knobs=knobs(settings.CLUSTER))
    known = {one.job for one in plan.cancel}
    more = [one for one in changes.abandoned(view, supposed) if one.job not in known]
    return replace(plan, cancel=(*plan.cancel, *more))


def _now(supposed: Changes, *, now: datetime) -> ClusterView:
    """The cluster as it is, and who could run what is supposed."""
    return snapshot.take(now=now, backends={one.backend for one in supposed.models if one.backend})


def _leaving(view: ClusterView, names: Collection[str]) -> tuple[Leaving, ...]:
    nodes = {node.id: node.name for node in view.nodes if node.name in names}
    managed = {one.name for one in view.models if one.rule is not None and one.rule.managed}
    found = (
        Leaving(
            node=nodes[row.node],
            model=row.model,
            index=row.slot,
            in_flight=row.in_flight,
            managed=row.model in managed,
        )
        for row in view.replicas
        if row.node in nodes and row.state == ReplicaState.LOADED
    )
    return tuple(sorted(found, key=lambda one: (one.node, one.model, one.index)))


def _answer(model: str, patient: Plan, eager: Plan) -> tuple[str, str]:
    """What stands in the way, and what would help; both empty when nothing does."""
    starved = next((one for one in eager.starved if one.model == model), None)
    held = next((one for one in patient.held if one.model == model), None)
    if starved is not None:
        return starved.reason, starved.smallest_fix
    return (held.reason if held else ""), ""


def _contented(standing: Standing, desired: int) -> str:
    if not standing.rule.managed:
        return "No rule asks for replicas: it is loaded when a request asks for it."
    if standing.have < desired:
        return f"{desired - standing.have} more will be placed by the next tick."
    return f"{standing.have} of {desired} replicas run or load."
