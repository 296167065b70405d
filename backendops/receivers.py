"""What the facts of nodes mean for orders. A receiver may nudge; the next tick would do it too."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from backendops.services import nudging


def on_capacity_changed(node_id: UUID, **_: Any) -> None:
    nudging.node_is_back(node_id, now=datetime.now(UTC))
