"""What the facts of nodes mean for orders. A receiver may nudge; the next tick would do it too."""

from typing import Any
from uuid import UUID

from clustermgr.lib.queue import after_commit


def on_capacity_changed(node_id: UUID, **_: Any) -> None:
    """A node came in or came back: what waits for it is due, and what it has may be new."""
    after_commit("backendops.dispatch")
    after_commit("backendops.look_at_node", str(node_id))
