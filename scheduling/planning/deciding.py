"""The whole decision: floors by priority, then what is too many, then more for whoever is busy."""

from datetime import datetime

from scheduling.planning import filling, rolling, trimming
from scheduling.planning.board import Board
from scheduling.planning.drafts import Draft
from scheduling.planning.plans import Plan
from scheduling.planning.standing import judge
from scheduling.planning.views import ClusterView, Knobs, ModelView


def plan(view: ClusterView, *, now: datetime, knobs: Knobs) -> Plan:
    """Decide everything at once. The same view gives the same plan, whatever its order."""
    draft = begin(view, now=now, knobs=knobs)
    standings = sorted(
        draft.standings.values(), key=lambda one: (-one.rule.priority, one.model.name)
    )
    for standing in standings:
        trimming.abandon(draft, standing)
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
    board = Board(view)
    strangers = (board.seats.keys() | board.loads.keys()) - board.models.keys()
    models = (*view.models, *(ModelView(name=name) for name in sorted(strangers)))
    standings = {model.name: judge(model, board, now=now, knobs=knobs) for model in models}
    for name in view.pressed & standings.keys():
        standings[name].pressed = True
    return Draft(board=board, standings=standings, now=now, knobs=knobs)
