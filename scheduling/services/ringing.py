"""Something changed: look at it now instead of at the next tick."""

from clustermgr.lib.queue import after_commit


def reconcile_soon() -> None:
    after_commit("scheduling.reconcile")
