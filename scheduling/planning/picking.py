"""The best node for one replica, without asking every node."""

from collections.abc import Iterable

from scheduling.planning import filters, scores
from scheduling.planning.board import Board
from scheduling.planning.spots import Spot
from scheduling.planning.wishes import Wish


def best(board: Board, wish: Wish) -> Spot | None:
    """Where the next replica goes; None: it fits nowhere.

    The order knows nothing of single models. What does depend on the model concerns the few
    nodes that have it, or one of its group, or failed to load it: those stand aside and are looked
    at one by one.
    """
    clashing = board.neighbours(wish)
    aside = clashing | _unlucky(board, wish)
    aside = aside if wish.packs else aside | _with_siblings(board, wish)
    usual = board.order(wish).first(lambda s: s not in aside and filters.fits(s, wish))
    holders = {spot for spot in board.hosts[wish.name] if scores.local(spot, wish)} - aside
    found = _best_of({*_fitting(holders, wish), *([usual] if usual else [])}, wish)
    if found is not None:
        return found
    return _best_of(_fitting(aside, wish), wish, clashing=clashing)


def _unlucky(board: Board, wish: Wish) -> set[Spot]:
    failed = wish.model.failed_on or ()
    return {board.spots[node] for node in failed if node in board.spots}


def _with_siblings(board: Board, wish: Wish) -> set[Spot]:
    return {spot for spot in board.hosts[wish.name] if scores.siblings(spot, wish)}


def _fitting(spots: Iterable[Spot], wish: Wish) -> list[Spot]:
    return [
        spot
        for spot in spots
        if not spot.closed and filters.allows(spot, wish) and filters.fits(spot, wish)
    ]


def _best_of(
    spots: Iterable[Spot], wish: Wish, *, clashing: Iterable[Spot] = frozenset()
) -> Spot | None:
    return min(
        spots, key=lambda spot: scores.full(spot, wish, clashes=spot in clashing), default=None
    )
