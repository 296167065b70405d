"""Replicas that are missing: the floor, one on every node, and one more when all are busy."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from uuid import UUID

from scheduling.planning import evicting, explaining, filters, picking, swapping
from scheduling.planning.drafts import Draft
from scheduling.planning.explaining import Answer
from scheduling.planning.plans import Place, Starved
from scheduling.planning.spots import Spot
from scheduling.planning.standing import Standing
from scheduling.planning.wishes import Wish
from scheduling.planning.words import times
from scheduling.states import Cause

WHY = {
    Cause.FLOOR: "fewer than min_replicas run",
    Cause.SPREAD: "every matching node gets one",
    Cause.BURST: "all replicas are busy",
    Cause.PRESSURE: "those that have seen the prompts are too busy",
    Cause.REPLACE: "its model was edited",
    Cause.DRAIN: "another node is being emptied",
    Cause.REQUEST: "a request asked for it",
    Cause.OPERATOR: "an operator asked for it",
}


def keep_floor(draft: Draft, standing: Standing) -> None:
    """Bring a managed model to its minimum, or say why not."""
    rule = standing.rule
    if standing.model.rule is None or not rule.managed:
        return
    if standing.wish is None:
        answer = Answer(
            reason=f"Its rule cannot be read: {standing.unreadable}",
            smallest_fix="correct the rule",
            verdicts=(),
        )
        starve(draft, standing, Cause.FLOOR, answer, missing=rule.min_replicas)
        return
    missing_on = targets(draft, standing.wish) if rule.spread_all else []
    missing = len(missing_on) if rule.spread_all else rule.min_replicas - standing.have
    if missing <= 0:
        _note_recovery(draft, standing)
        return
    if may_try(draft, standing, missing=missing):
        if rule.spread_all:
            _spread(draft, standing, standing.wish, missing_on)
        else:
            _fill(draft, standing, standing.wish, missing)


def burst(draft: Draft, standing: Standing) -> None:
    """One more when all replicas are busy, or the right ones, and none is on its way.

    Not having room is no news.
    """
    wish, rule = standing.wish, standing.rule
    if wish is None or not standing.serving or standing.coming or standing.placed:
        return
    if standing.short or not rule.managed or rule.spread_all or not standing.room:
        return
    if standing.old:  # another is on its way to each of them
        return
    if not standing.model.defined or backing_off(draft, standing):
        return
    busy = all(row.in_flight > 0 for row in standing.serving)
    if busy or standing.pressed:
        spot = picking.best(draft.board, wish)
        if spot is not None:
            place(draft, standing, wish, spot, Cause.BURST if busy else Cause.PRESSURE)


def place(
    draft: Draft,
    standing: Standing,
    wish: Wish,
    spot: Spot,
    cause: Cause,
    *,
    replaces: UUID | None = None,
    aside: str = "",
) -> None:
    """Put a replica on a node that has room; `aside`: what else there is to say about it."""
    verdicts = explaining.chosen(draft.board, wish, spot)
    index = draft.board.claim(spot, wish)
    standing.placed += 1
    standing.coming.append(spot.view.id)
    draft.place.append(
        Place(
            model=wish.name,
            revision=wish.model.revision,
            node=spot.view.id,
            node_name=spot.view.name,
            index=index,
            cause=cause,
            vram=wish.vram or 0,
            summary=f"{wish.name}#{index} goes to {spot.view.name}: {WHY[cause]}. {aside}".strip(),
            replaces=replaces,
            verdicts=verdicts,
        )
    )


def starve(draft: Draft, standing: Standing, cause: Cause, answer: Answer, *, missing: int) -> None:
    """Note that a rule cannot be kept. By time: who ticks more often does not starve sooner."""
    standing.short = True
    rule = standing.rule
    since = rule.unsatisfiable_since or draft.now
    lasting = draft.now - since >= draft.knobs.starved_after
    draft.starved.append(
        Starved(
            model=standing.model.name,
            cause=cause,
            missing=missing,
            reason=answer.reason,
            smallest_fix=explaining.with_alternative(answer.smallest_fix, standing),
            since=since,
            until=draft.now + draft.knobs.starved_pause if lasting else rule.unsatisfiable_until,
            news=lasting and rule.unsatisfiable_until is None,
            verdicts=answer.verdicts,
        )
    )


def backing_off(draft: Draft, standing: Standing) -> bool:
    retry_at = standing.model.retry_at
    return retry_at is not None and retry_at > draft.now


def may_try(draft: Draft, standing: Standing, *, missing: int) -> bool:
    model, rule = standing.model, standing.rule
    if not model.defined:
        answer = Answer(
            reason=f"Nobody has defined how {model.name} is loaded.",
            smallest_fix=f"define the model {model.name}",
            verdicts=(),
        )
        starve(draft, standing, Cause.FLOOR, answer, missing=missing)
        return False
    if backing_off(draft, standing):
        failed = f"It failed {times(model.failures)}"
        why = f"{failed}, last with: {model.last_error or 'no reason'}."
        draft.hold(standing, f"{why} Next try at {model.retry_at:%H:%M:%S} UTC.", missing=missing)
        return False
    if rule.unsatisfiable_until is not None and rule.unsatisfiable_until > draft.now:
        why = f"{rule.unsatisfiable_reason} Nobody tries before"
        draft.hold(standing, f"{why} {rule.unsatisfiable_until:%H:%M:%S} UTC.", missing=missing)
        standing.waiting = False  # nothing is on its way
        return False
    return True


def _fill(draft: Draft, standing: Standing, wish: Wish, missing: int) -> None:
    for cause in _causes(standing, missing):
        aside = "" if standing.room else swapping.make_way(draft, standing)
        if not standing.room:
            draft.hold(standing, aside, missing=standing.rule.min_replicas - standing.have)
            return
        spot = picking.best(draft.board, wish)
        if spot is None:
            short(draft, standing, wish, cause, aside=aside)
            return
        place(draft, standing, wish, spot, cause, aside=aside)
    _note_recovery(draft, standing)


def _causes(standing: Standing, missing: int) -> Iterator[Cause]:
    """Why each of the missing ones is missing."""
    known = chain(
        repeat(Cause.REPLACE, len(standing.outdated)),
        repeat(Cause.DRAIN, len(standing.stranded)),
        repeat(Cause.FLOOR),
    )
    return (cause for cause, _ in zip(known, range(missing), strict=False))


def short(draft: Draft, standing: Standing, wish: Wish, cause: Cause, *, aside: str = "") -> None:
    """Begin to make room, or say why there is none."""
    missing = max(standing.rule.min_replicas, standing.model.rolling) - standing.have
    waiting = aside or evicting.make_room(draft, wish) or own_leaving(standing)
    if waiting:
        draft.hold(standing, waiting, missing=missing)
        return
    starve(draft, standing, cause, explaining.nowhere(draft.board, wish), missing=missing)


def own_leaving(standing: Standing) -> str:
    """A slot belongs to its model: what it waits for when one of its own goes."""
    if not standing.leaving:
        return ""
    if standing.useless:
        return "A load from before its edit is given up: that slot is free in a moment."
    return "One of its own replicas is leaving: its slot is free in a moment."


def targets(draft: Draft, wish: Wish) -> list[Spot]:
    """Nodes that should have a replica and have none, nor will."""
    standing = draft.standings[wish.name]
    held = {row.node for row in standing.serving} | set(standing.coming)
    # Also where its backend cannot come: whoever wants it on every node is told
    return [spot for spot in draft.board.meant(wish) if spot.view.id not in held]


def _spread(draft: Draft, standing: Standing, wish: Wish, missing: Sequence[Spot]) -> None:
    """One on each node by name: counting would put two on a node with two slots."""
    full = []
    for spot in missing:
        if filters.allows(spot, wish) and filters.fits(spot, wish):
            place(draft, standing, wish, spot, Cause.SPREAD)
        else:
            full.append(spot)
    if not full:
        _note_recovery(draft, standing)
        return
    able = [spot for spot in full if filters.allows(spot, wish)]
    waiting = evicting.make_room(draft, wish, spots=able)
    if waiting:
        draft.hold(standing, waiting, missing=len(full))
        return
    if own := own_leaving(standing):
        draft.hold(standing, own, missing=len(full))
        standing.waiting = False  # each node speaks for itself: old ones elsewhere may go
        return
    answer = explaining.nowhere(draft.board, wish, spots=full)
    starve(draft, standing, Cause.SPREAD, answer, missing=len(full))


def _note_recovery(draft: Draft, standing: Standing) -> None:
    if standing.rule.unsatisfiable_since is not None:
        draft.recovered.append(standing.model.name)
