"""Nodes for benchmarks: approved, healthy, just heard of."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from nodes.models import BackendNode


def make_nodes(numbers: Iterable[int], **changes: Any) -> list[BackendNode]:
    now = changes.pop("now", None) or datetime.now(UTC)
    earlier = now - timedelta(hours=1)
    facts: dict[str, Any] = {
        "address": "10.0.0.1:50051",
        "approved_at": now,
        "approved_by": "bench",
        "last_heartbeat": now,
        "liveness_changed_at": now,
        "created_at": earlier,
        "updated_at": earlier,
        "total_vram": 24 * 2**30,
        **changes,
    }
    return BackendNode.objects.bulk_create(
        BackendNode(name=f"node-{number:05}", **facts) for number in numbers
    )
