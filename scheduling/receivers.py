"""What the facts of nodes mean for models. A receiver may nudge; the next tick would do it too."""

from typing import Any
from uuid import UUID

from clustermgr.lib.queue import after_commit


def on_replica_unloading(replica_id: UUID, **_: Any) -> None:
    after_commit("scheduling.stop_replica", str(replica_id))
