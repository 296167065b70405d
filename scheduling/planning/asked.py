"""One more replica because somebody asks for it, whatever the floor."""

import enum
from dataclasses import dataclass
from uuid import UUID

from scheduling.planning import evicting, explaining, filling, filters, picking
from scheduling.planning.drafts import Draft
from scheduling.planning.spots import Spot
from scheduling.planning.standing import Standing
from scheduling.planning.wishes import Wish
from scheduling.planning.words import times
from scheduling.states import Cause


class Refusal(enum.StrEnum):
    NONE = ""
    FULL = "full"  # no node can take it
    ROOM = "room"  # others leave for it
    FAILING = "failing"  # too early after the last failure
    LIMIT = "limit"  # max_replicas, or it moves already
    UNREADABLE = "unreadable"  # its rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    kind: Refusal = Refusal.NONE
    sentence: str = ""


def one_more(
    draft: Draft,
    standing: Standing,
    *,
    cause: Cause,
    node: UUID | None = None,
    replaces: UUID | None = None,
) -> Outcome:
    """Add the placement to the draft, or say why there is none."""
    wish = standing.wish
    if wish is None:
        return Outcome(kind=Refusal.UNREADABLE, sentence=standing.unreadable)
    name, rule = wish.name, standing.rule
    under_way = [job for job in draft.board.loads[name] if replaces and job.replaces == replaces]
    if under_way:
        there = draft.board.name(under_way[0].node)
        return Outcome(kind=Refusal.LIMIT, sentence=f"It is being moved to {there} already.")
    # What moves is counted once, by what it moves from
    moves = replaces in {row.id for row in (*standing.serving, *standing.misplaced)}
    if not moves and not standing.room:
        sentence = f"{name} has its {rule.max_replicas} replicas; raise max_replicas for more."
        return Outcome(kind=Refusal.LIMIT, sentence=sentence)
    # An operator may try again at once: he has looked
    if cause == Cause.REQUEST and filling.backing_off(draft, standing):
        sentence = (
            f"{name} failed {times(standing.model.failures)}, last with: "
            f"{standing.model.last_error or 'no reason'}. "
            f"Next try at {standing.model.retry_at:%H:%M:%S} UTC."
        )
        return Outcome(kind=Refusal.FAILING, sentence=sentence)
    if node is not None and node not in draft.board.spots:
        return Outcome(kind=Refusal.FULL, sentence="That node is not there any more.")
    only = [draft.board.spots[node]] if node is not None else None
    spot = _only(only, wish) if only else picking.best(draft.board, wish)
    if spot is not None:
        filling.place(draft, standing, wish, spot, cause, replaces=replaces)
        return Outcome()
    return _no_room(draft, standing, wish, only)


def _only(spots: list[Spot], wish: Wish) -> Spot | None:
    return next((spot for spot in spots if not filters.objections(spot, wish)), None)


def _no_room(draft: Draft, standing: Standing, wish: Wish, only: list[Spot] | None) -> Outcome:
    allowed = [s for s in only if not s.closed and filters.allows(s, wish)] if only else None
    waiting = evicting.make_room(draft, wish, spots=allowed)
    if not waiting and only is None:  # who wants that very node is told what it lacks
        waiting = filling.own_leaving(standing)
    if waiting:
        return Outcome(kind=Refusal.ROOM, sentence=f"{wish.name} has to wait: {waiting}")
    answer = explaining.nowhere(draft.board, wish, spots=only)
    sentence = f"{answer.reason} To mend it: {answer.smallest_fix}."
    return Outcome(kind=Refusal.FULL, sentence=sentence)
