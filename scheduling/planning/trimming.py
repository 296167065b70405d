"""Replicas that are too many: of an old revision, on the wrong node, above the maximum, idle.

Nobody in flight is touched, and no rule is broken by our own act.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from scheduling.planning.drafts import Draft
from scheduling.planning.plans import Cancel
from scheduling.planning.standing import Standing
from scheduling.planning.views import ReplicaView
from scheduling.states import Cause


def abandon(draft: Draft, standing: Standing) -> None:
    """Give up loads of what their model is not any more: they only keep the new one waiting.

    Also while old replicas are replaced one by one: no load of theirs would ever serve.
    """
    edited = "Its model was edited since this load began."
    reason = edited if standing.model.defined else "Nobody defines its model any more."
    for job in sorted(standing.useless, key=lambda job: job.id):
        draft.cancel.append(Cancel(job=job.id, model=job.model, reason=reason))
        draft.board.free(job)


def trim(draft: Draft, standing: Standing) -> None:
    """Let go whatever a model has too much of."""
    _outdated(draft, standing)
    if standing.wish is None:
        return  # fail closed: a rule that nobody can read unloads nothing either
    _misplaced(draft, standing)
    if standing.model.rule is None or not standing.rule.managed:
        return
    if standing.rule.spread_all:
        _doubled(draft, standing)
        return
    _above_maximum(draft, standing)
    _idle(draft, standing)


def _outdated(draft: Draft, standing: Standing) -> None:
    """Once their replacements serve; one by one when there is no room for these beside them."""
    if standing.waiting:
        return
    rows = resting([*standing.outdated, *standing.lost])
    # Of those that are replaced one by one, whoever is outdated has been replaced
    if not standing.old and len(standing.serving) < _floor(standing):
        alone = standing.short and not standing.coming and not standing.leaving
        # Where nobody answers nothing is freed, so that would not be the last one to go
        rows = resting(standing.outdated)[:1] if alone else []
    for row in rows:
        draft.stop(standing, row, Cause.REPLACE, "Its model was edited since it was loaded.")


def _misplaced(draft: Draft, standing: Standing) -> None:
    """Once as many serve where they should."""
    if len(standing.serving) < _floor(standing):
        return
    for row in resting(standing.misplaced):
        draft.stop(standing, row, Cause.CEILING, "Its node does not match the rule any more.")


def _doubled(draft: Draft, standing: Standing) -> None:
    """Spread over all nodes means one on each."""
    seen: Counter[UUID] = Counter()
    for row in sorted(standing.serving, key=lambda row: (-row.in_flight, row.slot)):
        seen[row.node] += 1
        if seen[row.node] > 1 and row.in_flight == 0:
            draft.stop(standing, row, Cause.CEILING, "One replica on each node is enough.")


def _above_maximum(draft: Draft, standing: Standing) -> None:
    """Loads first: whoever is not there yet is missed by nobody."""
    rule = standing.rule
    excess = standing.running - rule.max_replicas if rule.max_replicas else 0
    if excess <= 0:
        return
    _give_up(draft, standing, min(excess, standing.have - rule.min_replicas))
    # Nobody who serves leaves for those who are on their way or in doubt, nor for those that are
    # to be replaced: they come later or never, or go by themselves.
    above = len(standing.serving) - rule.max_replicas
    for row in _worst(draft, resting(standing.serving), above):
        draft.stop(
            standing,
            row,
            Cause.CEILING,
            f"More run than max_replicas ({rule.max_replicas}) allows.",
        )


def _give_up(draft: Draft, standing: Standing, number: int) -> None:
    """Cancel the youngest loads."""
    jobs = sorted(standing.loads, key=lambda job: -job.id)[: max(number, 0)]
    for job in jobs:
        standing.loads.remove(job)
        standing.coming.remove(job.node)
        reason = f"More run or load than max_replicas ({standing.rule.max_replicas}) allows."
        draft.cancel.append(Cancel(job=job.id, model=job.model, reason=reason))


def _idle(draft: Draft, standing: Standing) -> None:
    """Down to the minimum, zero included, but never the last idle one beside busy ones.

    All others being busy, the next tick would bring it back.
    """
    rule = standing.rule
    if rule.pinned or standing.placed or standing.short or not standing.spare:
        return
    idle = resting(standing.serving)
    busy = len(standing.serving) - len(idle)
    number = min(len(standing.serving) - rule.min_replicas, len(idle) - bool(busy))
    before = (draft.now - draft.knobs.idle_after).timestamp()
    unused = [row for row in idle if row.used < before]
    minutes = draft.knobs.idle_after.total_seconds() / 60
    for row in _worst(draft, unused, number):
        draft.stop(standing, row, Cause.IDLE, f"Unused for more than {minutes:g} minutes.")


def _floor(standing: Standing) -> int:
    """How many must serve before others may go; each node of a spread speaks for itself."""
    return 1 if standing.rule.spread_all and standing.coming else standing.rule.min_replicas


def resting(rows: Iterable[ReplicaView]) -> list[ReplicaView]:
    """Those nobody waits for."""
    return [row for row in rows if row.in_flight == 0]


def _worst(draft: Draft, rows: Iterable[ReplicaView], number: int) -> list[ReplicaView]:
    return worst_first(draft, rows)[:number] if number > 0 else []


def worst_first(draft: Draft, rows: Iterable[ReplicaView]) -> list[ReplicaView]:
    """Closed nodes first, then crowded ones, then the higher slot, then the longest unused."""

    def worth(row: ReplicaView) -> tuple[Any, ...]:
        spot = draft.board.spots[row.node]
        crowd = spot.live.get(row.model, 0)
        return (not spot.closed, -crowd, -row.slot, row.used, spot.view.name)

    return sorted(rows, key=worth)
