"""What if: the same cluster with something changed."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from clustermgr.lib.errors import InvalidInput, NotFound
from scheduling.planning.plans import Cancel
from scheduling.planning.views import ClusterView, ModelView, NodeView, RuleView

NodeEdit = Callable[[NodeView], NodeView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is supposed; nodes by name."""

    drain: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()  # the machine is gone
    rules: Mapping[str, Mapping[str, object]] | None = None  # model: fields of its rule
    models: tuple[ModelView, ...] = ()  # new, or instead of those that exist


def supposed(view: ClusterView, changes: Changes, *, now: datetime) -> ClusterView:
    """The cluster as it would be. Nobody waits there: pauses and back-offs are lifted."""
    view = _edited(view, changes.drain, lambda node: node._replace(drain_requested_at=now))
    view = _edited(view, changes.cordon, lambda node: node._replace(cordoned_at=now))
    view = _edited(view, changes.uncordon, lambda node: node._replace(cordoned_at=None))
    view = _without(view, changes.remove)
    view = _with_models(view, changes.models)
    return eager(_with_rules(view, changes.rules or {}))


def abandoned(view: ClusterView, changes: Changes) -> tuple[Cancel, ...]:
    """Loads under way on machines that are emptied, or gone; no tick decides about them."""
    fates = dict.fromkeys(changes.drain, "being drained") | dict.fromkeys(changes.remove, "gone")
    nodes = {node.id: node.name for node in view.nodes if node.name in fates}
    return tuple(
        Cancel(job=job.id, model=job.model, reason=f"{name} is {fates[name]}.")
        for job in view.jobs
        if job.active and (name := nodes.get(job.node))
    )


def eager(view: ClusterView) -> ClusterView:
    """The same cluster without pauses: what would be decided if somebody tried now."""
    return replace(view, models=tuple(map(_eager, view.models)))


def _eager(model: ModelView) -> ModelView:
    rule = model.rule
    if rule is not None and rule.unsatisfiable_until is not None:
        rule = replace(rule, unsatisfiable_until=None)
    return replace(model, rule=rule, retry_at=None)


def _edited(view: ClusterView, names: Collection[str], edit: NodeEdit) -> ClusterView:
    if not names:
        return view
    _known(view, names)
    nodes = (edit(node) if node.name in names else node for node in view.nodes)
    return replace(view, nodes=tuple(nodes))


def _without(view: ClusterView, names: Collection[str]) -> ClusterView:
    if not names:
        return view
    gone = _known(view, names)
    return replace(
        view,
        nodes=tuple(node for node in view.nodes if node.id not in gone),
        replicas=tuple(row for row in view.replicas if row.node not in gone),
        jobs=tuple(job for job in view.jobs if job.node not in gone),
    )


def _known(view: ClusterView, names: Collection[str]) -> set[UUID]:
    ids = {node.name: node.id for node in view.nodes}
    for name in names:
        if name not in ids:
            raise NotFound(f"There is no node {name}.")
    return {ids[name] for name in names}


def _with_models(view: ClusterView, models: Collection[ModelView]) -> ClusterView:
    known = {model.name: model for model in view.models}
    for model in models:
        before = known.get(model.name)
        rule = model.rule or (before.rule if before else None)
        backend = model.backend or (before.backend if before else "")
        known[model.name] = replace(model, backend=backend, rule=rule and _consistent(rule))
    return replace(view, models=tuple(known.values()))


def _with_rules(view: ClusterView, rules: Mapping[str, Mapping[str, object]]) -> ClusterView:
    known = {model.name: model for model in view.models}
    for name, fields in rules.items():
        model = known.get(name)
        if model is None:
            raise NotFound(f"There is no model {name}, nor a rule for it.")
        rule = replace(model.rule or RuleView(), **fields)  # type: ignore[arg-type]
        known[name] = replace(model, rule=_consistent(rule))
    return replace(view, models=tuple(known.values()))


def _consistent(rule: RuleView) -> RuleView:
    """As a stored rule would be checked."""
    least, most = rule.min_replicas, rule.max_replicas
    if most and least > most:
        raise InvalidInput(f"min_replicas ({least}) is above max_replicas ({most}).")
    if rule.spread_all and (least or most):
        raise InvalidInput("spread_all stands alone: without min_replicas and max_replicas.")
    return rule
