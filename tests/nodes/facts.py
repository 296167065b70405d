"""Hears the announced facts, so that a test can say what was told and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nodes.signals import capacity_changed, replica_removed


class Heard:
    def __init__(self) -> None:
        self.capacity: list[Any] = []
        self.removed: list[tuple[Any, str, int, str]] = []

    def on_capacity(self, node_id: Any, **_: Any) -> None:
        self.capacity.append(node_id)

    def on_removed(
        self, node_id: Any, model_name: str, replica_index: int, reason: str, **_: Any
    ) -> None:
        self.removed.append((node_id, model_name, replica_index, reason))


@contextmanager
def listening() -> Iterator[Heard]:
    heard = Heard()
    capacity_changed.connect(heard.on_capacity)
    replica_removed.connect(heard.on_removed)
    try:
        yield heard
    finally:
        capacity_changed.disconnect(heard.on_capacity)
        replica_removed.disconnect(heard.on_removed)
