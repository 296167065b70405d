from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from worker import builtin
from worker.backends import DiskBackends
from worker.machine import Gallery

Opened = Callable[..., DiskBackends]


@pytest.fixture(scope="session")
def galleries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Gallery, Gallery]:
    """The built-in ones: current, previous."""
    return builtin.galleries(tmp_path_factory.mktemp("builtin"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "backends"


@pytest.fixture
def opened(root: Path) -> Iterator[Opened]:
    """Opens the folder of backends as a worker does at its start; the last one opened holds it."""
    held: list[DiskBackends] = []

    def open_again(**options: Any) -> DiskBackends:
        for backends in held:
            backends.close()
        held.append(DiskBackends(root, **options))
        return held[-1]

    yield open_again
    for backends in held:
        backends.close()
