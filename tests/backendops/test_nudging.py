from datetime import datetime, timedelta
from typing import Any

import pytest

from backendops.models import NodeInventory
from backendops.services import nudging
from tests.factories import NOW, make_node, make_op

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_node_that_is_back_is_asked_and_gets_what_waits_for_it(queued: list[Any]) -> None:
    node = make_node()
    make_op(node)
    NodeInventory.objects.create(node=node, observed_at=NOW - timedelta(minutes=5))
    nudging.node_is_back(node.pk, now=NOW)
    assert queued == [("backendops.dispatch",), ("backendops.look_at_node", str(node.pk))]


@pytest.mark.parametrize("heard", [NOW - timedelta(seconds=30), None])
def test_nobody_rings_for_a_node_that_was_just_heard_or_never(
    heard: datetime | None, queued: list[Any]
) -> None:
    node = make_node()
    NodeInventory.objects.create(node=node, observed_at=heard)
    nudging.node_is_back(node.pk, now=NOW)
    assert queued == []
