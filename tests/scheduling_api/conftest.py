from typing import Any

import pytest

from tests.api.conftest import root

__all__ = ["no_broker", "root"]


@pytest.fixture(autouse=True)
def no_broker(db: None, queued: list[tuple[Any, ...]]) -> None:
    """Edits ring doorbells after commit; nobody listens here."""
