from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.nodes_admin.conftest import no_broker, operator, root, viewer

__all__ = ["no_broker", "operator", "root", "viewer"]


@pytest.fixture
def queries(django_assert_num_queries: Any, operator: Client) -> Callable[[str, int], None]:
    """A page costs the operator exactly so many queries."""

    def check(url: str, count: int) -> None:
        operator.get(url)  # permissions and content types are read once
        with django_assert_num_queries(count):
            assert operator.get(url).status_code == 200

    return check
