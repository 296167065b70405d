"""Each node's verdict in words, and the smallest change that would help."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.planning import filters, scores
from scheduling.planning.board import Board
from scheduling.planning.filters import Kind, Objection
from scheduling.planning.plans import Verdict
from scheduling.planning.spots import Spot
from scheduling.planning.standing import Standing
from scheduling.planning.wishes import Wish
from scheduling.planning.words import count

MANY = 50  # a decision names so many nodes, the nearest first; "Why?" names them all
# Of one node, and of several
GROUPS = {
    Kind.TYPE: ("runs no backends", "run no backends"),
    Kind.APPROVAL: ("waits for approval", "wait for approval"),
    Kind.LIVENESS: ("is not healthy", "are not healthy"),
    Kind.DRAIN: ("is being drained", "are being drained"),
    Kind.CORDON: ("is cordoned", "are cordoned"),
    Kind.QUARANTINE: ("is quarantined", "are quarantined"),
    Kind.TAINT: ("has a taint that is not tolerated", "have a taint that is not tolerated"),
    Kind.SELECTOR: ("does not match the selector", "do not match the selector"),
    Kind.BACKEND: ("cannot run its backend", "cannot run its backend"),
    Kind.HARDWARE: ("has too little memory in all", "have too little memory in all"),
    Kind.BUDGET: ("has too small a VRAM budget", "have too small a VRAM budget"),
    Kind.SLOT: ("has no free slot", "have no free slot"),
    Kind.VRAM: ("has too little VRAM free", "have too little VRAM free"),
    Kind.RAM: ("has too little RAM free", "have too little RAM free"),
    Kind.DISK: ("has too little disk free", "have too little disk free"),
}
ANOTHER = {Kind.TYPE, Kind.HARDWARE}  # mended by another node, whatever else this one lacks
AWAY = {Kind.DRAIN, Kind.LIVENESS}  # what it has counts again when that is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why a replica has no place."""

    reason: str
    smallest_fix: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    spot: Spot
    objections: Sequence[Objection]

    @property
    def asks(self) -> tuple[int, int, str]:
        """How far it is from fitting."""
        kinds = sum(objection.asks for objection in self.objections)
        return kinds, sum(o.amount for o in self.objections), self.spot.view.name


def nowhere(
    board: Board, wish: Wish, *, spots: Sequence[Spot] | None = None, most: int = MANY
) -> Answer:
    """Explain a placement that is not possible."""
    among = tuple(board.spots.values()) if spots is None else spots
    judged = [_judged(board, spot, wish) for spot in among]
    nearest = sorted((one for one in judged if one.objections), key=lambda one: one.asks)
    return Answer(
        reason=_reason(wish, nearest),
        smallest_fix=_fix(nearest),
        verdicts=tuple(_refused(one) for one in nearest[:most]),
    )


def everywhere(board: Board, wish: Wish) -> tuple[Verdict, ...]:
    """What there is to say of every node, those that fit first, then the nearest to it."""
    judged = [_judged(board, spot, wish) for spot in board.spots.values()]
    able = [one.spot for one in judged if not one.objections]
    refused = sorted((one for one in judged if one.objections), key=lambda one: one.asks)
    return (*_ranked(board, wish, able), *map(_refused, refused))


def _judged(board: Board, spot: Spot, wish: Wish) -> _Judged:
    """Room is no obstacle where a replica of its own takes it and would count again."""
    found = filters.objections(spot, wish)
    if any(one.kind in AWAY for one in found) and board.stands(wish, spot):
        found = [one for one in found if one.kind not in filters.ROOMS]
    return _Judged(spot=spot, objections=found)


def chosen(board: Board, wish: Wish, spot: Spot) -> tuple[Verdict, ...]:
    """Why this node: against all others of a small fleet, by its own score in a large one."""
    if len(board.spots) > MANY:
        return _ranked(board, wish, [spot])
    return everywhere(board, wish)


def with_alternative(fix: str, standing: Standing) -> str:
    """Asking for less is always possible where some replicas run."""
    have, rule = standing.have, standing.rule
    if rule.spread_all or not 0 < have < rule.min_replicas:
        return fix
    return f"{fix}, or lower min_replicas to {have}"


def _ranked(board: Board, wish: Wish, spots: Sequence[Spot]) -> tuple[Verdict, ...]:
    clashing = board.neighbours(wish)
    scored = [(scores.full(spot, wish, clashes=spot in clashing), spot) for spot in spots]
    return tuple(
        Verdict(
            node=spot.view.id,
            name=spot.view.name,
            fits=True,
            why=_praise(spot, wish, clashes=spot in clashing),
            score=score[:-1],
        )
        for score, spot in sorted(scored, key=lambda pair: pair[0])
    )


def _praise(spot: Spot, wish: Wish, *, clashes: bool) -> str:
    facts = ["idle" if spot.idle else f"{count(spot.in_flight, 'request')} in flight"]
    same = spot.live.get(wish.name, 0)
    if same:
        facts.append(f"{count(same, 'replica')} of it already there")
    if scores.unlucky(spot, wish):
        facts.append("its last load there failed, so others come first")
    if clashes:
        facts.append(f"shares the group {wish.model.group}")
    if scores.unwelcome(spot, wish):
        facts.append("tainted, but not against this")
    return f"it fits: {', '.join(facts)}"


def _refused(one: _Judged) -> Verdict:
    why = "; ".join(objection.why for objection in one.objections)
    return Verdict(node=one.spot.view.id, name=one.spot.view.name, fits=False, why=why)


def _reason(wish: Wish, nearest: Sequence[_Judged]) -> str:
    if not nearest:
        return "There is no node at all."
    if len(nearest) == 1:
        return f"{nearest[0].spot.view.name}: {_refused(nearest[0]).why}."
    # A node is counted by the hardest of its objections: mending the others would not help
    kinds = Counter(max(one.objections, key=lambda o: o.asks).kind for one in nearest)
    groups = ", ".join(f"{n} {GROUPS[kind][n > 1]}" for kind, n in kinds.most_common())
    return f"None of {len(nearest)} nodes can take {wish.name}: {groups}."


def _fix(nearest: Sequence[_Judged]) -> str:
    if not nearest:
        return "add a node"
    found = nearest[0].objections
    mend = [one for one in found if one.kind in ANOTHER][:1] or found
    return " and ".join(dict.fromkeys(objection.fix for objection in mend))
