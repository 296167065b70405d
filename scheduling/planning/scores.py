"""Which of the nodes that can is best: each score is a number, the smaller the better.

Scores are compared one after the other. The first ones are the operator's wishes; then comes
what serves soonest: with a GPU before without. The name decides last, so that equal input gives
equal plans.
"""

from typing import Any

from nodes.states import TaintEffect
from nodes.taints import untolerated
from scheduling.planning.spots import Spot
from scheduling.planning.wishes import GIB, Wish


def unwelcome(spot: Spot, wish: Wish) -> int:
    """PreferNoSchedule taints that nothing covers."""
    if not spot.view.taints:
        return 0
    left = untolerated(spot.view.taints, tolerations=wish.tolerations)
    return sum(taint.effect == TaintEffect.PREFER_NO_SCHEDULE for taint in left)


def siblings(spot: Spot, wish: Wish) -> int:
    """Replicas of the same model: spreading avoids them."""
    return 0 if wish.packs else spot.live.get(wish.name, 0)


def local(spot: Spot, wish: Wish) -> bool:
    """Whether its files are there: a replica is, or was until a moment ago."""
    return wish.name in spot.taken


def unlucky(spot: Spot, wish: Wish) -> bool:
    """Whether its last loads of the model failed: any other node is a better guess."""
    return spot.view.id in (wish.model.failed_on or ())


def spreading(spot: Spot, wish: Wish) -> tuple[Any, ...]:
    """Idle first, then least requests in flight, then most memory, in whole GiB."""
    return (unwelcome(spot, wish), not spot.gpu, not spot.idle, spot.in_flight, -(spot.vram // GIB))


def packing(spot: Spot, wish: Wish) -> tuple[Any, ...]:
    """In use first, then least memory: big holes stay whole for big models."""
    return (unwelcome(spot, wish), not spot.gpu, spot.idle, spot.vram // GIB, spot.in_flight)


def base(spot: Spot, wish: Wish) -> tuple[Any, ...]:
    """What all models of one pool agree on."""
    return packing(spot, wish) if wish.packs else spreading(spot, wish)


def full(spot: Spot, wish: Wish, *, clashes: bool) -> tuple[Any, ...]:
    """The whole score of one node for one model."""
    return (
        unlucky(spot, wish),
        clashes,
        siblings(spot, wish),
        *base(spot, wish),
        not local(spot, wish),
        spot.vram if wish.packs else -spot.vram,
        spot.view.name,
    )
