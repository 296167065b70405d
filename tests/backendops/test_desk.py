from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from backendops.models import PendingBackendOp
from backendops.services.desk import Desk
from backendops.states import OpState
from nodes.wire import InstallProgress
from tests.backendops.conftest import Clock
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db(transaction=True)


def tick(percentage: float, *, seq: int = 0, current: str = "", total: str = "") -> InstallProgress:
    return InstallProgress(
        op_id="x",
        node_id="n",
        backend="llama-cpp",
        percentage=percentage,
        seq=seq,
        current=current,
        total=total,
        phase="downloading",
        file_name="llama.tar",
    )


@pytest.fixture
def op() -> PendingBackendOp:
    return make_op(make_node(), state=OpState.RUNNING, fence=3)


@pytest.fixture
def desk(clock: Clock, op: PendingBackendOp) -> Iterator[Desk]:
    desk = Desk(clock=clock)
    with desk.holding(op):
        yield desk


def write(desk: Desk, op: PendingBackendOp, *ticks: InstallProgress) -> PendingBackendOp:
    for each in ticks:
        desk.tell(op.pk, each)
        desk.write_progress(now=NOW)
    op.refresh_from_db()
    return op


def test_a_reading_is_stored_with_its_bytes(desk: Desk, op: PendingBackendOp) -> None:
    write(desk, op, tick(50, current="1.5 GiB", total="3.0 GiB"))
    assert (op.percentage, op.current_bytes, op.total_bytes) == (50, 3 * 2**29, 3 * 2**30)
    assert (op.phase, op.file_name) == ("downloading", "llama.tar")


def test_row_23_an_older_reading_is_ignored(desk: Desk, op: PendingBackendOp) -> None:
    write(desk, op, tick(60, seq=5), tick(40, seq=4))
    assert (op.percentage, op.progress_seq) == (60, 5)


def test_row_23_a_settled_op_is_not_touched(desk: Desk, op: PendingBackendOp) -> None:
    PendingBackendOp.objects.filter(pk=op.pk).update(state=OpState.DEAD, finished_at=NOW)
    assert write(desk, op, tick(99, seq=9)).percentage == 0


def test_a_reading_for_an_old_claim_is_ignored(desk: Desk, op: PendingBackendOp) -> None:
    PendingBackendOp.objects.filter(pk=op.pk).update(fence=4)
    assert write(desk, op, tick(99)).percentage == 0


def test_row_22_a_thousand_readings_are_one_statement(
    desk: Desk, op: PendingBackendOp, django_assert_num_queries: Any
) -> None:
    for number in range(1000):
        desk.tell(op.pk, tick(number / 10, seq=number + 1))
    with django_assert_num_queries(1):
        desk.write_progress(now=NOW)
    op.refresh_from_db()
    assert op.percentage == pytest.approx(99.9)


def test_many_ops_are_written_in_the_same_statement(
    clock: Clock, django_assert_num_queries: Any
) -> None:
    ops = [make_op(make_node(f"n{number}"), state=OpState.RUNNING, fence=1) for number in range(50)]
    make_operation(*ops)
    desk = Desk(clock=clock)
    holds = [desk.holding(op) for op in ops]
    for hold in holds:
        hold.__enter__()
    for op in ops:
        desk.tell(op.pk, tick(30))
    with django_assert_num_queries(1):
        assert desk.write_progress(now=NOW) == 50
    for hold in holds:
        hold.__exit__(None, None, None)


def test_row_24_the_bar_of_an_operation_never_goes_back(desk: Desk, op: PendingBackendOp) -> None:
    other = make_op(make_node("two"), state=OpState.SUCCEEDED, total_bytes=0)
    operation = make_operation(op, other)
    write(desk, op, tick(50, total="100.0 B"))
    operation.refresh_from_db()
    assert operation.progress_floor == pytest.approx(75)
    PendingBackendOp.objects.filter(pk=op.pk).update(percentage=0)
    write(desk, op, tick(1, total="100.0 B"))
    operation.refresh_from_db()
    assert operation.progress_floor == pytest.approx(75)


def test_the_lease_is_renewed_for_what_is_held(desk: Desk, op: PendingBackendOp) -> None:
    desk.renew(now=NOW + timedelta(hours=1))
    op.refresh_from_db()
    assert op.lease_until is not None
    assert op.lease_until > NOW + timedelta(hours=1)


def test_what_was_taken_away_is_not_renewed(desk: Desk, op: PendingBackendOp) -> None:
    PendingBackendOp.objects.filter(pk=op.pk).update(fence=4)
    desk.renew(now=NOW + timedelta(hours=1))
    op.refresh_from_db()
    assert op.lease_until == NOW
