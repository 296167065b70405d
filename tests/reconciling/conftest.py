from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """No test here has a broker behind it: what is rung is kept in `queued`."""
