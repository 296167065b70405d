from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from nodes import signals


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """No test here has a broker behind it: what is rung is kept in `queued`."""


@pytest.fixture
def removals() -> Iterator[list[tuple[str, int, str]]]:
    """What replica_removed told: (model, index, reason)."""
    told: list[tuple[str, int, str]] = []

    def hear(*, model_name: str, replica_index: int, reason: str, **_: Any) -> None:
        told.append((model_name, replica_index, reason))

    signals.replica_removed.connect(hear)
    yield told
    signals.replica_removed.disconnect(hear)


@pytest.fixture
def stops() -> Iterator[list[UUID]]:
    """Replicas for which replica_unloading was told."""
    told: list[UUID] = []

    def hear(*, replica_id: UUID, **_: Any) -> None:
        told.append(replica_id)

    signals.replica_unloading.connect(hear)
    yield told
    signals.replica_unloading.disconnect(hear)


@pytest.fixture
def capacity() -> Iterator[list[UUID]]:
    """Nodes for which capacity_changed was told."""
    told: list[UUID] = []

    def hear(*, node_id: UUID, **_: Any) -> None:
        told.append(node_id)

    signals.capacity_changed.connect(hear)
    yield told
    signals.capacity_changed.disconnect(hear)
