"""How a model is doing: which of its replicas count, and for what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from clustermgr.lib.errors import InvalidInput
from nodes.states import ReplicaState
from scheduling.planning import wishes
from scheduling.planning.views import JobView, Knobs, ModelView, NodeView, ReplicaView, RuleView
from scheduling.planning.wishes import NO_RULE, Wish


@dataclass(slots=True, kw_only=True)
class Standing:
    """One model while a plan takes shape."""

    model: ModelView
    wish: Wish | None = None  # None: it cannot be read
    unreadable: str = ""
    serving: list[ReplicaView] = field(default_factory=list)  # current, routable, well placed
    misplaced: list[ReplicaView] = field(default_factory=list)  # the same, on nodes not wanted
    old: list[ReplicaView] = field(default_factory=list)  # serve until a new one stands in
    outdated: list[ReplicaView] = field(default_factory=list)  # serve nobody any more
    stranded: list[ReplicaView] = field(default_factory=list)  # on nodes that are being emptied
    coming: list[UUID] = field(default_factory=list)  # nodes where one loads, or is in doubt
    leaving: int = 0  # being stopped, and likely to be gone soon
    placed: int = 0
    short: bool = False  # a replica is missing and nothing is done about it in this plan
    waiting: bool = False  # ... for a reason that passes by itself

    @property
    def rule(self) -> RuleView:
        return self.model.rule or NO_RULE

    @property
    def have(self) -> int:
        return len(self.serving) + len(self.coming)

    @property
    def spare(self) -> int:
        """How many that serve may go without breaking the rule by our own act."""
        if self.rule.spread_all or self.old:
            return 0
        return max(len(self.serving) - self.rule.min_replicas, 0)

    @property
    def room(self) -> bool:
        """Whether the maximum allows one more."""
        limit = self.rule.max_replicas
        return not limit or self.have < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the standing of every model is judged with."""

    nodes: Mapping[UUID, NodeView]
    now: datetime
    knobs: Knobs


def judge(
    model: ModelView, rows: Iterable[ReplicaView], jobs: Iterable[JobView], *, at: Moment
) -> Standing:
    """Sort a model's replicas by what they are good for."""
    standing = Standing(model=model)
    try:
        standing.wish = wishes.read(model)
    except InvalidInput as error:
        standing.unreadable = str(error)
    # In an order of their own: the same cluster must not be decided differently by chance
    for row in sorted(rows, key=lambda row: row.id.int):
        standing.leaving += row.leaving
        if row.state == ReplicaState.LOADED:
            _sort(standing, row, at)
    # One that moves and what it moves to are one: neither the minimum nor the maximum minds
    moving = {row.id for row in (*standing.serving, *standing.misplaced, *standing.old)}
    for job in jobs:
        node = at.nodes.get(job.node)
        if node is None or not node.routable or job.revision != model.revision:
            continue
        if job.replaces not in moving:
            standing.coming.append(job.node)
    return standing


def _sort(standing: Standing, row: ReplicaView, at: Moment) -> None:
    node = at.nodes.get(row.node)
    another = _another_revision(standing.model, row)
    if row.outdated_at is not None or (another and not standing.model.rolling):
        standing.outdated.append(row)
    elif node is None or not node.routable:
        if node is not None and node.drain_requested_at is not None:
            standing.stranded.append(row)
    elif row.withdrawn_at is None:
        _sort_serving(standing, row, node, at, another=another)


def _sort_serving(
    standing: Standing, row: ReplicaView, node: NodeView, at: Moment, *, another: bool
) -> None:
    if row.suspect_since is not None:
        if at.now - row.suspect_since < at.knobs.doubt_for and not another:
            standing.coming.append(row.node)
    elif another:
        standing.old.append(row)
    elif standing.wish is not None and not standing.wish.selector.matches(node.labels):
        standing.misplaced.append(row)
    else:
        standing.serving.append(row)


def _another_revision(model: ModelView, row: ReplicaView) -> bool:
    # Nothing is known of a replica without a revision, and of a model without a definition
    return bool(model.revision and row.revision) and row.revision != model.revision
