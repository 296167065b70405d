"""How a model is doing: which of its replicas count, and for what."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from clustermgr.lib.errors import InvalidInput
from nodes.states import ReplicaState
from scheduling.planning import wishes
from scheduling.planning.board import Board
from scheduling.planning.spots import Spot
from scheduling.planning.views import JobView, Knobs, ModelView, ReplicaView, RuleView
from scheduling.planning.wishes import NO_RULE, Wish

NO_LIMIT = 1_000_000
LOADED = ReplicaState.LOADED.value  # plain text: compared with every row there is


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
    lost: list[ReplicaView] = field(default_factory=list)  # outdated, where nobody answers
    coming: list[UUID] = field(default_factory=list)  # nodes where one loads, or is in doubt
    loads: list[JobView] = field(default_factory=list)  # of those the ones that load
    useless: list[JobView] = field(default_factory=list)  # loads that will never be published
    leaving: int = 0  # being stopped, or given up, where that is a matter of moments
    placed: int = 0
    pressed: bool = False  # requests had to go where nobody has seen their prompt
    short: bool = False  # a replica is missing and nothing is done about it in this plan
    waiting: bool = False  # ... for a reason that passes by itself

    @property
    def rule(self) -> RuleView:
        return self.model.rule or NO_RULE

    @property
    def have(self) -> int:
        return len(self.serving) + len(self.coming)

    @property
    def taking(self) -> int:
        """How many take requests, those included that are to go when others have come."""
        emptied = [row for row in self.stranded if not row.withdrawn_at and not row.suspect_since]
        return len(self.serving) + len(self.misplaced) + len(self.old) + len(emptied)

    @property
    def spare(self) -> int:
        """How many that serve may go without breaking the rule by our own act."""
        if self.rule.spread_all or self.old:
            return 0
        return max(len(self.serving) - self.rule.min_replicas, 0)

    @property
    def groups(self) -> tuple[list[ReplicaView], ...]:
        """Everything it has that can be unloaded."""
        return (
            self.serving,
            self.misplaced,
            self.old,
            self.outdated,
            self.stranded,
            self.lost,
        )

    @property
    def replaceable(self) -> list[ReplicaView]:
        """Those that run and are to be replaced."""
        return [*self.outdated, *self.stranded, *self.misplaced, *self.old]

    @property
    def running(self) -> int:
        """All that run or come; who leaves serves nobody and is not counted."""
        return self.have + len(self.replaceable)

    @property
    def room(self) -> int:
        """How many more the maximum allows, replacements included."""
        limit = self.rule.max_replicas
        return max(limit - self.running, 0) if limit else NO_LIMIT


def judge(model: ModelView, board: Board, *, now: datetime, knobs: Knobs) -> Standing:
    """Sort a model's replicas by what they are good for."""
    standing = Standing(model=model)
    try:
        standing.wish = wishes.read(model, offer=board.offers.get(model.backend))
    except InvalidInput as error:
        standing.unreadable = str(error)
    trusted = now - knobs.doubt_for
    # In an order of their own: the same cluster must not be decided differently by chance
    for row, spot in sorted(board.seats.get(model.name, ()), key=lambda seat: seat[0].id.int):
        if row.state == LOADED:
            _sort(standing, row, spot, trusted=trusted)
        elif spot is not None and spot.reachable:
            standing.leaving += row.leaving
    # One that moves and what it moves to are one: neither the minimum nor the maximum minds
    moving = {row.id for row in (*standing.serving, *standing.misplaced, *standing.old)}
    for job in board.loads.get(model.name, ()):
        at = board.spots.get(job.node)
        if not model.defined or job.revision != model.revision:
            standing.useless.append(job)
            standing.leaving += at is not None and at.reachable
        elif at is not None and at.routable and job.replaces not in moving:
            standing.coming.append(job.node)
            standing.loads.append(job)
    return standing


def _sort(standing: Standing, row: ReplicaView, spot: Spot | None, *, trusted: datetime) -> None:
    """`trusted`: who is in doubt since then may still turn out to be well."""
    another = _another_revision(standing.model, row)
    outdated = row.outdated_at is not None or (another and not standing.model.rolling)
    if spot is None or not spot.reachable:
        if outdated:
            standing.lost.append(row)
    elif outdated:
        standing.outdated.append(row)
    elif not spot.routable:
        standing.stranded.append(row)
    elif row.withdrawn_at is None:
        _sort_serving(standing, row, spot, trusted=trusted, another=another)


def _sort_serving(
    standing: Standing, row: ReplicaView, spot: Spot, *, trusted: datetime, another: bool
) -> None:
    if row.suspect_since is not None:
        if row.suspect_since > trusted and not another:
            standing.coming.append(row.node)
    elif another:
        standing.old.append(row)
    elif standing.wish is not None and not standing.wish.selector.matches(spot.view.labels):
        standing.misplaced.append(row)
    else:
        standing.serving.append(row)


def _another_revision(model: ModelView, row: ReplicaView) -> bool:
    # Nothing is known of a replica without a revision, and of a model without a definition
    return bool(model.revision and row.revision) and row.revision != model.revision
