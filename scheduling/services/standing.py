"""Where models stand: wished for, there, on the way, and why not; a fixed number of queries."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, Min, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from clustermgr.lib.errors import InvalidInput
from nodes.models import BackendNode, NodeModel, NodeTaint
from nodes.selectors import Selector
from nodes.services import labels
from nodes.states import ReplicaState, TaintEffect
from nodes.taints import Taint, untolerated
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig, PlacementDecision
from scheduling.planning import wishes
from scheduling.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One model's wish and what became of it."""

    name: str
    model: ModelLoadInfo | None = None
    rule: ModelSchedulingConfig | None = None
    actual: int = 0  # may serve now
    loading: int = 0  # jobs under way
    outdated: int = 0  # of an older revision, to be replaced
    unloading: int = 0
    matching: int | None = None  # nodes its selector means; None: not asked
    unreadable: str = ""  # what is wrong with its rule, which then means no node
    desired: int = 0
    why: str = ""
    since: datetime | None = None

    @property
    def starved(self) -> bool:
        """Fewer than wished for, and nothing on its way that would make it enough."""
        return self.actual + self.loading < self.desired

    @property
    def settled(self) -> bool:
        return not (self.loading or self.unloading or self.outdated) and not self.starved

    @property
    def failing(self) -> bool:
        """Its last loads failed, and it is not as it should be: short of replicas, or without."""
        failed = bool(self.model and self.model.failures)
        return failed and not (self.settled and self.actual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Every node that may get something new, with what selectors and tolerations look at."""

    labels: Mapping[UUID, Mapping[str, str]]
    taints: Mapping[UUID, list[Taint]]
    # many rules share one selector
    known: dict[str, tuple[int, str]] = field(default_factory=dict)

    def matching(self, rule: ModelSchedulingConfig) -> tuple[int, str]:
        """How many of them a rule means; none if it cannot be read, and what is wrong with it.

        One row that an older version wrote, or a hand, must not take every list down.
        """
        asked = f"{rule.selector} {rule.tolerations}"
        if asked not in self.known:
            try:
                self.known[asked] = self._count(rule), ""
            except InvalidInput as refusal:
                self.known[asked] = 0, str(refusal)
        return self.known[asked]

    def _count(self, rule: ModelSchedulingConfig) -> int:
        selector = Selector.parse(rule.selector)
        tolerations = wishes.read_tolerations(rule.tolerations)
        return sum(
            selector.matches(pairs)
            and not untolerated(self.taints.get(node, ()), tolerations=tolerations)
            for node, pairs in self.labels.items()
        )


def fleet() -> Fleet:
    """Three statements."""
    ids = list(BackendNode.objects.schedulable().values_list("pk", flat=True))
    taints: dict[UUID, list[Taint]] = defaultdict(list)
    for row in NodeTaint.objects.filter(node__in=ids, effect=TaintEffect.NO_SCHEDULE):
        taints[row.node_id].append(Taint(key=row.key, value=row.value, effect=row.effect))
    return Fleet(labels=labels.effective(ids), taints=taints)


def matching_nodes(selector: str) -> tuple[int, int]:
    """How many nodes a selector means, of how many that may get something new."""
    nodes = BackendNode.objects.schedulable()
    return nodes.matching(Selector.parse(selector)).count(), nodes.count()


def of(names: Iterable[str]) -> list[Standing]:
    """In the order given; names nobody knows stand for nothing at all."""
    wanted = list(names)
    models = ModelLoadInfo.objects.in_bulk(wanted)
    found = ModelSchedulingConfig.objects.filter(model_name__in=wanted)
    by_name = {rule.model_name: rule for rule in found}
    counts = _replicas(wanted)
    loading = _loading(wanted)
    machines = fleet() if by_name else None
    standings = []
    for name in wanted:
        rule = by_name.get(name)
        matching, wrong = machines.matching(rule) if machines and rule else (None, "")
        standings.append(
            Standing(
                name=name,
                model=models.get(name),
                rule=rule,
                loading=loading[name],
                matching=matching,
                unreadable=wrong,
                desired=_desired(rule, matching or 0),
                **counts.get(name, {}),
            )
        )
    return _explained(standings)


def one(name: str) -> Standing:
    return of([name])[0]


def _replicas(names: Collection[str]) -> dict[str, dict[str, Any]]:
    serving = NodeModel.objects.all().serving().filter(model_name__in=names)
    rows: Any = (
        NodeModel.objects.filter(model_name__in=names)
        .order_by()
        .values("model_name")
        .annotate(
            actual=Count("pk", filter=Q(pk__in=serving.order_by().values("pk"))),
            outdated=Count("pk", filter=_old() & ~Q(state=ReplicaState.UNLOADING)),
            unloading=Count("pk", filter=Q(state=ReplicaState.UNLOADING)),
        )
    )
    return {row.pop("model_name"): row for row in rows}


def _old() -> Q:
    """Of an older revision, whether it serves nobody or until another stands in for it."""
    rolling = ModelLoadInfo.objects.filter(pk=OuterRef("model_name"), rolling_since__isnull=False)
    another = rolling.exclude(config_revision=OuterRef("config_revision"))
    return Q(outdated_at__isnull=False) | Q(Exists(another))


def _loading(names: Collection[str]) -> Counter[str]:
    rows = LoadJob.objects.active().filter(model_name__in=names)
    return Counter(rows.values_list("model_name", flat=True))


def _desired(rule: ModelSchedulingConfig | None, matching: int) -> int:
    if rule is None:
        return 0
    return matching if rule.spread_all else rule.min_replicas


def _explained(standings: list[Standing]) -> list[Standing]:
    """Say of everything that is not as wished why, and since when."""
    last = _last_decisions([one.name for one in standings if one.starved])
    failing = _failing_since([one.name for one in standings if one.failing])
    return [
        _with_reason(one, decision=last.get(one.name), failing=failing.get(one.name))
        for one in standings
    ]


def _last_decisions(names: list[str]) -> dict[str, PlacementDecision]:
    if not names:
        return {}
    rows = PlacementDecision.objects.filter(model_name__in=names, node=None)
    newest = rows.order_by("model_name", "-id").distinct("model_name").defer("verdicts")
    return {row.model_name: row for row in newest}


def _failing_since(names: list[str]) -> dict[str, datetime]:
    """When the first load failed after the last that did not."""
    if not names:
        return {}
    jobs = LoadJob.objects.filter(model_name=OuterRef("model_name"), state=JobState.LOADED)
    succeeded = Coalesce(Subquery(jobs.order_by("-id").values("id")[:1]), 0)
    failed = LoadJob.objects.filter(model_name__in=names, state=JobState.FAILED)
    later = failed.filter(id__gt=succeeded).order_by().values_list("model_name")
    return dict(later.annotate(Min("finished_at")))


def _with_reason(
    standing: Standing, *, decision: PlacementDecision | None, failing: datetime | None
) -> Standing:
    why, since = _reason(standing, decision, failing)
    return replace(standing, why=why, since=since) if why else standing


def _reason(
    standing: Standing, decision: PlacementDecision | None, failing: datetime | None
) -> tuple[str, datetime | None]:
    model, rule = standing.model, standing.rule
    if model is not None and standing.failing:
        return f"It failed {_times(model.failures)}: {model.last_error}", failing
    if rule is None:
        return "", None
    if standing.unreadable:
        since = rule.unsatisfiable_since or rule.updated_at
        return f"Its rule cannot be read: {standing.unreadable}", since
    if model is None and standing.starved:
        return "Nobody has defined this model: what to load is not known.", rule.created_at
    if rule.unsatisfiable_reason:  # also while enough serve: some of them on nodes that go
        return rule.unsatisfiable_reason, rule.unsatisfiable_since
    if not standing.starved:
        return "", None
    if decision is not None:
        return decision.summary, decision.at
    return "The scheduler has not looked at it yet.", rule.updated_at


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times in a row"
