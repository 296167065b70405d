"""What the facts of nodes mean for models. A receiver may nudge; the next tick would do it too."""

from typing import Any
from uuid import UUID

from clustermgr.lib.queue import after_commit
from scheduling.services import hunger, prefixing, ringing


def on_replica_unloading(replica_id: UUID, **_: Any) -> None:
    after_commit("scheduling.stop_replica", str(replica_id))


def on_replica_removed(*, node_id: UUID, model_name: str, replica_index: int, **_: Any) -> None:
    """What it had seen is gone with it, and every process should know."""
    prefixing.default().forget(model_name, node_id, replica_index)


def on_service_lost(**_: Any) -> None:
    """What the floor is short of is looked for at once."""
    ringing.reconcile_soon()


def on_room_came(**_: Any) -> None:
    """Free memory goes up and down all day: no pause lasts, but the next look is the clock's.

    A bell for each upswing in a large fleet would be one tick after the other.
    """
    hunger.capacity_came()


def on_capacity_changed(**_: Any) -> None:
    """What did not fit may fit now: nobody waits for the end of a pause, nor for the clock."""
    if hunger.capacity_came():
        ringing.reconcile_soon()
