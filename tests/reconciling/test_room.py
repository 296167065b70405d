"""Memory that comes back, of which nobody hears but by a heartbeat."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from clustermgr.models import Bell
from nodes.models import BackendNode
from nodes.services import beating, capacity
from nodes.services.beating import Beat
from nodes.wire import HeartbeatReport
from scheduling.models import LoadJob, ModelSchedulingConfig
from scheduling.services import reconciling
from tests.factories import GIB, NOW, make_model, make_node, make_rule

pytestmark = pytest.mark.django_db(transaction=True)
LATER = NOW + timedelta(minutes=2)
MIB = 2**20
Queued = list[tuple[Any, ...]]


def starve(**facts: Any) -> BackendNode:
    """A rule that has starved for long enough to pause."""
    node = make_node(**{"total_vram": 24 * GIB, "available_vram": 4 * GIB, **facts})
    make_model(vram_bytes=8 * GIB, size_bytes=8 * GIB)
    make_rule(min_replicas=1)
    tick(NOW)
    tick(LATER)
    assert ModelSchedulingConfig.objects.get().unsatisfiable_until == LATER + timedelta(minutes=5)
    return node


def tick(now: datetime) -> None:
    Bell.objects.all().delete()  # as a tick does that begins
    reconciling.tick(now=now)


def beat(node: BackendNode, *, at: datetime, **report: Any) -> None:
    told = Beat(node_id=node.pk, received_at=at, report=HeartbeatReport(**report))
    beating.record([told])


def capacity_known() -> int:
    """How often capacity came, as pauses know it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM scheduling_capacity")
        (known,) = cursor.fetchone()
    return int(known)


def test_what_a_dead_process_gave_back_ends_a_pause(queued: Queued) -> None:
    node = starve()
    queued.clear()
    beat(node, at=LATER, available_vram=12 * GIB)
    assert queued == []  # the next tick sees it: memory swings too often for a bell
    tick(LATER)
    assert LoadJob.objects.count() == 1


def test_a_raised_budget_counts_when_the_worker_says_what_it_makes_free(queued: Queued) -> None:
    node = starve(available_vram=4 * GIB, vram_budget="4GiB", vram_budget_bytes=4 * GIB)
    capacity.set_vram_budget(node, "12GiB", by="ada", now=LATER)
    assert ("scheduling.reconcile",) in queued
    tick(LATER)  # which knows of no more memory yet, and pauses again
    assert not LoadJob.objects.exists()
    beat(node, at=LATER, available_vram=20 * GIB, total_vram=24 * GIB)
    tick(LATER)
    assert LoadJob.objects.count() == 1


@pytest.mark.parametrize(
    ("before", "told"),
    [
        pytest.param({}, {"available_vram": 4 * GIB}, id="the same"),
        pytest.param({}, {"available_vram": 3 * GIB}, id="less"),
        pytest.param({}, {"available_vram": 5 * GIB - 1}, id="a little more"),
        pytest.param({}, {"available_ram": 30 * GIB}, id="RAM beside a GPU"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_what_helps_nobody_ends_no_pause(
    before: dict[str, Any], told: dict[str, Any], queued: Queued
) -> None:
    node = starve(**before)
    known = capacity_known()
    beat(node, at=LATER, **told)
    assert capacity_known() == known


CPU = {"total_vram": 0, "available_vram": 0, "total_ram": 64 * GIB, "available_ram": 2 * GIB}
DISK = {"total_disk": 2000 * GIB, "available_disk": 3 * GIB}
SMALL = {"total_vram": 6 * GIB, "available_vram": GIB}


@pytest.mark.parametrize(
    ("before", "told"),
    [
        pytest.param(CPU, {"available_ram": 3 * GIB}, id="RAM without a GPU"),
        pytest.param(DISK, {"available_disk": 4 * GIB}, id="disk"),
        pytest.param(SMALL, {"available_vram": GIB + 384 * MIB}, id="a sixteenth of a small card"),
        pytest.param({}, {"available_vram": 5 * GIB}, id="a GiB of a large one"),
    ],
)
def test_more_room_of_any_kind_is_told(
    before: dict[str, Any], told: dict[str, Any], queued: Queued
) -> None:
    node = starve(**before)
    known = capacity_known()
    beat(node, at=LATER, **told)
    assert capacity_known() > known


def test_a_node_that_was_not_let_in_brings_no_room(queued: Queued) -> None:
    starve()
    pending = make_node("gpu-2", approved_at=None, approved_by="", total_vram=24 * GIB)
    known = capacity_known()
    beat(pending, at=LATER, available_vram=20 * GIB)
    assert capacity_known() == known


def test_many_that_have_more_room_cost_one_look_and_no_bell(
    queued: Queued, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    starve()
    nodes = [make_node(f"other-{number}", total_vram=24 * GIB) for number in range(30)]
    report = HeartbeatReport(available_vram=6 * GIB)
    queued.clear()
    beats = [Beat(node_id=one.pk, received_at=LATER, report=report) for one in nodes]
    # begin, the setting, all beats, commit, that capacity came
    with django_assert_max_num_queries(5):
        beating.record(beats)
    assert queued == []
