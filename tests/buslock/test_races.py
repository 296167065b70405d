from typing import Any

import pytest

from clustermgr.lib.natsauth import Key
from nodes.models import BackendNode, NodeCredential
from nodes.services import credentials, retirement
from tests.factories import NOW, make_node
from tests.nodes.test_registration_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_retirement_that_races_with_renewals_leaves_nothing_live(
    minting: Key, queued: list[Any]
) -> None:
    for number in range(10):
        node = make_node(f"gpu-{number}")

        def act(turn: int, node: BackendNode = node) -> None:
            mine = BackendNode.objects.get(pk=node.pk)
            if turn == 1:
                retirement.retire(mine, by="ada", reason="", now=NOW)
            else:
                credentials.mint(mine, now=NOW)

        at_once(4, act)
    assert BackendNode.objects.filter(retired_at=None).count() == 0
    assert not NodeCredential.objects.live(NOW).exists()
