"""Something changed: look at it now instead of at the next tick."""

from datetime import timedelta

from clustermgr.lib import bells

RECONCILE = "scheduling.reconcile"
A_TICK_TAKES = timedelta(seconds=1)  # at most, as a rule


def reconcile_soon() -> None:
    """However many say so before a tick begins, one comes for all of them."""
    bells.ring(RECONCILE)


def reconcile_later() -> None:
    """Whoever is at it may have looked before us: another look, when he is done."""
    bells.ring(RECONCILE, after=A_TICK_TAKES)
