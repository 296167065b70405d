"""The whole decision: floors by priority, then what is too many, then more for whoever is busy."""

from datetime import datetime

from scheduling.planning import board as boards
from scheduling.planning import filling, rolling, trimming
from scheduling.planning.board import Board
from scheduling.planning.drafts import Draft
from scheduling.planning.plans import Plan
from scheduling.planning.standing import Moment, Standing, judge
from scheduling.planning.views import ClusterView, Knobs, ModelView


def plan(view: ClusterView, *, now: datetime, knobs: Knobs) -> Plan:
    """Decide everything at once. The same view gives the same plan, whatever its order."""
    draft = begin(view, now=now, knobs=knobs)
    standings = sorted(
        draft.standings.values(), key=lambda one: (-one.rule.priority, one.model.name)
    )
    for standing in standings:
        if not rolling.turn(draft, standing):
            filling.keep_floor(draft, standing)
    for standing in standings:
        trimming.trim(draft, standing)
    for standing in standings:
        filling.burst(draft, standing)
    return draft.finished()


def begin(view: ClusterView, *, now: datetime, knobs: Knobs) -> Draft:
    """Set the board up; nothing is decided yet."""
    at = Moment(nodes={node.id: node for node in view.nodes}, now=now, knobs=knobs)
    rows, jobs = boards.by_model(view.replicas), boards.coming(view.jobs)
    known = {model.name: model for model in view.models}
    strangers = (rows.keys() | jobs.keys()) - known.keys()
    models = (*view.models, *(ModelView(name=name) for name in sorted(strangers)))
    standings: dict[str, Standing] = {
        model.name: judge(model, rows.get(model.name, ()), jobs.get(model.name, ()), at=at)
        for model in models
    }
    return Draft(board=Board(view), standings=standings, now=now, knobs=knobs)
