from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backendops.models import Operation, PendingBackendOp
from backendops.progress import SILENT_AFTER
from backendops.services import rollups
from backendops.services.rollups import Rollup
from backendops.services.summaries import summary
from backendops.states import OpState, Verb
from nodes.models import BackendNode
from tests.backendops_admin.rows import many_nodes
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db

readings = st.fixed_dictionaries(
    {
        "state": st.sampled_from(OpState),
        "percentage": st.floats(-5, 120),
        "current_bytes": st.integers(0, 2**40),
        "total_bytes": st.one_of(st.just(0), st.integers(1, 2**40)),
        "rate": st.one_of(st.just(0.0), st.floats(0.001, 2**30)),
        "progress_at": st.sampled_from([None, NOW, NOW - SILENT_AFTER, NOW - timedelta(hours=1)]),
    }
)


def rolled(operation: Operation) -> Rollup:
    return rollups.rollups([operation], now=NOW)[operation.pk]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(told=st.lists(readings, min_size=1, max_size=6), floor=st.floats(0, 100))
def test_numbers_alone_tell_the_same_as_reading_every_op(
    db: None, told: list[dict[str, Any]], floor: float
) -> None:
    Operation.objects.all().delete()
    PendingBackendOp.objects.all().delete()
    BackendNode.objects.all().delete()
    nodes = many_nodes(len(told))
    ops = [make_op(node, **columns) for node, columns in zip(nodes, told, strict=True)]
    operation = make_operation(*ops, progress_floor=floor)
    short, long = rolled(operation), summary(operation, now=NOW)
    assert short.state == long.state
    assert {state: count for state, count in short.counts.items() if count} == long.counts
    assert short.percentage == pytest.approx(long.progress.percentage)
    assert short.total_bytes == long.progress.total_bytes
    assert short.rate == pytest.approx(long.progress.rate)
    assert (short.active, short.failed, short.done) == (long.active, long.failed, long.done)
    if long.progress.eta is None:
        assert short.eta is None
    else:
        assert short.eta is not None
        assert abs(short.eta - long.progress.eta) < timedelta(seconds=1)


def test_row_14_the_third_in_line_says_so_and_what_is_ahead() -> None:
    node = make_node()
    make_operation(make_op(node, "first", state=OpState.RUNNING), backend="first")
    make_operation(make_op(node, "second", verb=Verb.DELETE), backend="second")
    third = make_operation(make_op(node, "third"), backend="third")
    place = rollups.places([third.pk])[third.pk]
    assert (place.position, place.behind) == (3, "install of first, delete of second")


def test_a_fan_out_is_told_by_the_line_where_it_is_nearest() -> None:
    busy, free = make_node("busy"), make_node("free")
    make_operation(make_op(busy, "first", state=OpState.RUNNING), backend="first")
    operation = make_operation(make_op(busy), make_op(free))
    assert rollups.places([operation.pk])[operation.pk].position == 1


def test_who_waits_for_a_node_that_is_away_has_no_place() -> None:
    operation = make_operation(make_op(make_node(liveness="offline")))
    assert rollups.places([operation.pk]) == {}


def test_live_are_those_under_way_and_failures_that_nobody_dismissed() -> None:
    node = make_node()
    running = make_operation(make_op(node, "a", state=OpState.RUNNING), backend="a")
    failed = make_operation(make_op(node, "b", state=OpState.DEAD), backend="b")
    make_operation(make_op(node, "c", state=OpState.SUCCEEDED), backend="c")
    make_operation(
        make_op(node, "d", state=OpState.DEAD),
        backend="d",
        acknowledged_at=NOW,
        acknowledged_by="ada",
    )
    assert {roll.operation for roll in rollups.live(now=NOW)} == {running.pk, failed.pk}


def test_an_error_comes_with_the_name_of_the_first_node_that_failed() -> None:
    ops = [
        make_op(make_node(name), state=OpState.DEAD, last_error=f"{name} is full")
        for name in ("b", "a")
    ]
    assert rolled(make_operation(*ops)).first_error == "a: a is full"
