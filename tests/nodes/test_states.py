from itertools import product

import pytest

from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.machine import move
from nodes.models import BackendNode, NodeModel
from nodes.states import (
    LIVENESS_MOVES,
    REPLICA_MOVES,
    Facts,
    Liveness,
    NodeStatus,
    NodeType,
    ReplicaState,
    status_of,
)
from nodes.wire import NODE_TYPES
from tests.factories import make_node, make_replica

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("here", "there"), list(product(Liveness, Liveness)))
def test_liveness_moves_exactly_as_the_table_says(here: Liveness, there: Liveness) -> None:
    node = make_node(liveness=here)
    if there in LIVENESS_MOVES[here]:
        move(node, there)
    else:
        with pytest.raises(InvalidMove):
            move(node, there)
    expected = there if there in LIVENESS_MOVES[here] else here
    assert BackendNode.objects.get(pk=node.pk).liveness == expected


@pytest.mark.parametrize(("here", "there"), list(product(ReplicaState, ReplicaState)))
def test_replicas_move_exactly_as_the_table_says(here: ReplicaState, there: ReplicaState) -> None:
    replica = make_replica(make_node(), state=here)
    if there in REPLICA_MOVES[here]:
        move(replica, there)
    else:
        with pytest.raises(InvalidMove):
            move(replica, there)
    expected = there if there in REPLICA_MOVES[here] else here
    assert NodeModel.objects.get(pk=replica.pk).state == expected


def test_a_move_decides_by_the_database_not_by_a_stale_copy() -> None:
    stale = make_node()
    move(BackendNode.objects.get(pk=stale.pk), Liveness.OFFLINE)
    with pytest.raises(InvalidMove, match="gpu-1 is offline, it cannot become unhealthy"):
        move(stale, Liveness.UNHEALTHY)


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("retired", [True, False])
@pytest.mark.parametrize("draining", [True, False])
@pytest.mark.parametrize("liveness", Liveness)
def test_the_shown_status_is_the_strongest_fact(
    approved: bool, retired: bool, draining: bool, liveness: Liveness
) -> None:
    shown = status_of(
        Facts(approved=approved, retired=retired, draining=draining, liveness=liveness)
    )
    strongest = [
        (retired, NodeStatus.RETIRED),
        (not approved, NodeStatus.PENDING),
        (draining, NodeStatus.DRAINING),
        (True, NodeStatus(liveness)),
    ]
    assert shown == next(status for holds, status in strongest if holds)


def test_the_wire_and_the_database_know_the_same_node_types() -> None:
    assert list(NODE_TYPES) == NodeType.values
