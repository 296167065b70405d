from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from backendops.models import Operation, PendingBackendOp
from backendops.services import changes
from backendops.states import OP_MOVES, OUTSTANDING, OperationState, OpState, operation_state
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.machine import move
from tests.factories import NOW, make_node, make_op, make_operation

PAIRS = list(product(OpState, OpState))


@pytest.mark.django_db
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_exactly_the_declared_moves_are_possible(source: OpState, target: OpState) -> None:
    op = make_op(make_node(), state=source)
    columns = {"due_at": NOW, "lease_until": NOW, "finished_at": NOW}
    if target in OP_MOVES[source]:
        assert move(op, target, **columns).state == target
    else:
        with pytest.raises(InvalidMove):
            move(op, target, **columns)


@pytest.mark.django_db
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_changes_obey_the_same_table(source: OpState, target: OpState) -> None:
    op = make_op(make_node(), state=source)
    rows = PendingBackendOp.objects.filter(pk=op.pk)
    columns = {"due_at": NOW, "lease_until": NOW, "finished_at": NOW}
    changed = changes.change(rows, target, now=NOW, **columns)
    assert bool(changed) == (target in OP_MOVES[source])


def test_whatever_is_over_stays_over() -> None:
    for state in set(OpState) - {*OUTSTANDING, OpState.DEAD}:
        assert OP_MOVES[state] == frozenset()


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("queued queued", OperationState.QUEUED),
        ("queued succeeded", OperationState.RUNNING),
        ("running failed", OperationState.RUNNING),
        ("unconfirmed succeeded", OperationState.UNCONFIRMED),
        ("cancelling unconfirmed", OperationState.CANCELLING),
        ("succeeded superseded", OperationState.SUCCEEDED),
        ("succeeded failed", OperationState.PARTIAL),
        ("succeeded cancelled", OperationState.PARTLY_CANCELLED),
        ("succeeded cancelled superseded", OperationState.PARTLY_CANCELLED),
        ("succeeded cancelled dead", OperationState.PARTIAL),
        ("failed dead", OperationState.FAILED),
        ("dead cancelled", OperationState.FAILED),
        ("cancelled superseded", OperationState.CANCELLED),
    ],
)
def test_an_operation_is_named_by_its_ops(states: str, expected: OperationState) -> None:
    assert operation_state(Counter(map(OpState, states.split()))) == expected


class MirrorTest(TestCase):
    @settings(deadline=None)  # a database on a busy machine
    @given(st.lists(st.sampled_from(list(OpState)), min_size=1, max_size=4))
    def test_the_database_names_operations_as_python_does(self, states: list[OpState]) -> None:
        Operation.objects.all().delete()
        PendingBackendOp.objects.all().delete()
        node = make_node(f"node-{PendingBackendOp.objects.count()}-{id(states)}")
        ops = [
            make_op(node, f"backend-{number}", state=state) for number, state in enumerate(states)
        ]
        operation = make_operation(*ops)
        expected = operation_state(Counter(states))
        found = [s for s in OperationState if Operation.objects.in_state(s).exists()]
        assert found == [expected]
        live = Operation.objects.live().filter(pk=operation.pk).exists()
        assert live != Operation.objects.over().filter(pk=operation.pk).exists()
        node.backend_ops.all().delete()
        node.delete()
