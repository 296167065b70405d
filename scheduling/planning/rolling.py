"""Old replicas replaced while they serve: new ones come up beside them, each retires an old one."""

from collections.abc import Iterable

from scheduling.planning import evicting, filling, filters, picking, swapping, trimming
from scheduling.planning.drafts import Draft
from scheduling.planning.filters import Kind
from scheduling.planning.plans import Rolled
from scheduling.planning.spots import Spot
from scheduling.planning.standing import Standing
from scheduling.planning.views import ReplicaView
from scheduling.planning.wishes import Wish
from scheduling.states import Cause

SHARE = 4  # one more than serve for every four of them, and always one
REPLACED = "Its model was edited, and a replica of the new revision serves."
UNWANTED = "Its model was edited, and no replica is wanted there any more."
CURABLE = {Kind.SLOT, Kind.VRAM}  # by stopping the old one first


def turn(draft: Draft, standing: Standing) -> bool:
    """One step of the way to the new revision; False when there is nothing on that way.

    As many serve as before, if there is any room.
    """
    if not standing.old:
        if standing.model.rolling and len(standing.serving) >= standing.rule.min_replicas:
            model = standing.model
            draft.rolled.append(Rolled(model=model.name, revision=model.revision))
        return False
    if standing.wish is None:
        return False  # fail closed: the old ones serve on
    if standing.rule.spread_all:
        _on_each_node(draft, standing, standing.wish)
    else:
        _to_number(draft, standing, standing.wish)
    return bool(standing.old)  # who has just lost the last old one is like any other


def _to_number(draft: Draft, standing: Standing, wish: Wish) -> None:
    rule = standing.rule
    goal = max(rule.min_replicas, standing.model.rolling)
    goal = min(goal, rule.max_replicas) if rule.max_replicas else goal
    surplus = len(standing.old) + len(standing.serving) - goal
    for row in _in_order(draft, standing.old)[: max(surplus, 0)]:
        draft.retire(standing, row, REPLACED)
    missing = goal - standing.have
    if missing <= 0 or not filling.may_try(draft, standing, missing=missing):
        return
    room = goal + _surge(goal) - len(standing.old) - standing.have
    for _ in range(min(missing, room)):
        if not standing.room and not _made_way(draft, standing, goal):
            return
        spot = picking.best(draft.board, wish)
        if spot is None:
            _in_place(draft, standing, wish, standing.old, goal=goal)
            return
        filling.place(draft, standing, wish, spot, Cause.REPLACE)


def _on_each_node(draft: Draft, standing: Standing, wish: Wish) -> None:
    """As `_to_number`, but each node has its own."""
    replaced = {row.node for row in standing.serving}
    targets = filling.targets(draft, wish)
    done = not targets and not standing.coming
    for row in list(standing.old):
        if row.node in replaced or done:
            draft.retire(standing, row, REPLACED if row.node in replaced else UNWANTED)
    if not targets or not filling.may_try(draft, standing, missing=len(targets)):
        return
    goal = len(draft.board.pool(wish))
    room = max(_surge(goal) - len(standing.coming), 0)
    able = [spot for spot in targets if filters.allows(spot, wish)]
    free = [spot for spot in able if filters.fits(spot, wish)]
    for spot in free[:room]:
        filling.place(draft, standing, wish, spot, Cause.REPLACE)
    full = {spot.view.id for spot in targets} - {spot.view.id for spot in free}
    if full:
        rows = [row for row in standing.old if row.node in full]
        _in_place(draft, standing, wish, rows, goal=goal)


def _in_place(
    draft: Draft, standing: Standing, wish: Wish, rows: Iterable[ReplicaView], *, goal: int
) -> None:
    """No room beside them: an old one goes first, one at a time."""
    if _on_the_way(draft, standing, goal):
        return
    movable = [row for row in _in_order(draft, rows) if _would_fit(draft, row, wish)]
    if not movable:
        filling.short(draft, standing, wish, Cause.REPLACE)
        return
    row, left = movable[0], len(standing.old) + len(standing.serving) - 1
    if not left:
        waiting = evicting.make_room(draft, wish)  # others leave before anybody has to wait
        if waiting:
            draft.hold(standing, waiting, missing=1)
            return
    where = f"{row.key} on {draft.board.name(row.node)}"
    serve = "serves" if left == 1 else "serve"
    others = f"{left} {serve} meanwhile" if left else "none serves until the new one is loaded"
    reason = f"There is no room for a new replica beside the old: {where} goes first; {others}."
    draft.retire(standing, row, reason, gap=True)


def _made_way(draft: Draft, standing: Standing, goal: int) -> bool:
    """The maximum leaves no room beside them: one goes first, and another when it is replaced."""
    if _on_the_way(draft, standing, goal):
        return False
    if any(row.in_flight == 0 for row in standing.replaceable):
        swapping.make_way(draft, standing)
        return bool(standing.room)
    row, limit = _in_order(draft, standing.old)[0], standing.rule.max_replicas
    where = f"{row.key} on {draft.board.name(row.node)}"
    reason = f"max_replicas is {limit}: {where} makes way for its replacement."
    draft.retire(standing, row, reason, gap=True)
    return False


def _on_the_way(draft: Draft, standing: Standing, goal: int) -> bool:
    """Whether somebody comes or goes already, and what that frees is waited for.

    One that goes may answer requests for hours: as long as enough serve beside it, the next goes.
    """
    if standing.coming or standing.leaving or trimming.resting(standing.outdated):
        return True
    serve = len(standing.old) + len(standing.serving)
    if not standing.outdated or serve >= goal:
        return False
    row = standing.outdated[0]
    where = f"{row.key} on {draft.board.name(row.node)}"
    reason = f"{where} makes way for a new replica when its requests are over."
    draft.hold(standing, reason, missing=goal - standing.have)
    return True


def _would_fit(draft: Draft, row: ReplicaView, wish: Wish) -> bool:
    """Whether the new one could have the place of this old one, which needs about as much."""
    spot: Spot | None = draft.board.spots.get(row.node)
    if spot is None or spot.closed or not filters.allows(spot, wish):
        return False
    lacks = {found.kind for check in filters.ROOM if (found := check(spot, wish))}
    return lacks <= CURABLE and (wish.vram is None or spot.vram >= 0)


def _in_order(draft: Draft, rows: Iterable[ReplicaView]) -> list[ReplicaView]:
    """Who is idle goes before who is busy."""
    worst = trimming.worst_first(draft, rows)
    return sorted(worst, key=lambda row: row.in_flight > 0)


def _surge(serving: int) -> int:
    return -(-serving // SHARE)
