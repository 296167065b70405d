from collections.abc import Callable
from datetime import timedelta

import pytest

from backendops.models import Operation, PendingBackendOp
from backendops.services import retention
from backendops.states import OpState
from nodes.models import ClusterEvent
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db


def test_what_ended_long_ago_is_forgotten_and_an_event_says_so(turn: Callable[..., None]) -> None:
    turn(keep_history_for=timedelta(days=30))
    node = make_node()
    old = make_operation(make_op(node, "a", state=OpState.SUCCEEDED))
    recent = make_operation(
        make_op(node, "b", state=OpState.SUCCEEDED), requested_at=NOW + timedelta(days=20)
    )
    assert retention.prune(now=NOW + timedelta(days=31)) == 1
    assert list(Operation.objects.all()) == [recent]
    assert PendingBackendOp.objects.count() == 1
    assert ClusterEvent.objects.get().kind == "history.pruned"
    assert old.pk != recent.pk


@pytest.mark.parametrize("state", [OpState.DEAD, OpState.FAILED, OpState.QUEUED, OpState.RUNNING])
def test_what_an_operator_may_still_need_stays_for_ever(state: OpState) -> None:
    make_operation(make_op(make_node(), state=state), acknowledged_at=NOW)
    assert retention.prune(now=NOW + timedelta(days=9999)) == 0
