from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from nodes import statements
from nodes.fields import UINT64_MAX
from nodes.models import BackendNode
from nodes.services import beating
from nodes.services.beating import Beat
from nodes.states import Liveness
from nodes.wire import HeartbeatReport
from tests.factories import GIB, NOW, make_node, make_pending

SOON = NOW + timedelta(seconds=10)


def beat(node_id: UUID, *, at: datetime = SOON, **report: Any) -> Beat:
    return Beat(node_id=node_id, received_at=at, report=HeartbeatReport(**report))


def after(node: BackendNode, *beats: Beat) -> BackendNode:
    beating.record(beats)
    return BackendNode.objects.get(pk=node.pk)


@pytest.mark.django_db
def test_what_was_told_is_stored_and_the_rest_left_alone() -> None:
    node = make_node(total_ram=9, available_ram=8, total_disk=7, available_disk=6, gpu_vendor="amd")
    node = after(node, beat(node.pk, available_ram=5, available_disk=0))
    assert (node.last_heartbeat, node.available_ram, node.available_disk) == (SOON, 5, 0)
    assert (node.total_ram, node.total_disk, node.gpu_vendor) == (9, 7, "amd")


@pytest.mark.django_db
def test_every_field_of_the_report_arrives_in_its_column() -> None:
    told: dict[str, Any] = {
        "available_vram": 1,
        "total_vram": UINT64_MAX,
        "available_ram": 3,
        "available_disk": 4,
        "total_disk": 5,
        "gpu_vendor": "nvidia",
    }
    node = make_node()
    node = after(node, beat(node.pk, **told))
    assert {name: getattr(node, name) for name in told} == told


@pytest.mark.django_db
def test_free_memory_is_capped_by_the_budget() -> None:
    node = make_node(total_vram=16 * GIB, vram_budget="50%", vram_budget_bytes=8 * GIB)
    node = after(node, beat(node.pk, available_vram=12 * GIB))
    assert node.available_vram == 8 * GIB
    node = after(node, beat(node.pk, available_vram=3 * GIB))
    assert node.available_vram == 3 * GIB


@pytest.mark.django_db
def test_a_report_of_free_memory_ends_no_reservation_of_a_load_under_way() -> None:
    node = make_node(reserved_vram=GIB)
    assert after(node, beat(node.pk, available_ram=1)).reserved_vram == GIB
    assert after(node, beat(node.pk, available_vram=0)).reserved_vram == GIB


@pytest.mark.django_db
def test_a_card_that_shrank_below_its_budget_does_not_spoil_the_batch() -> None:
    shrunk = make_node(total_vram=16 * GIB, vram_budget="12GiB", vram_budget_bytes=12 * GIB)
    other = make_node("gpu-2")
    shrunk = after(
        shrunk,
        beat(shrunk.pk, total_vram=8 * GIB, available_vram=10 * GIB),
        beat(other.pk, available_ram=1),
    )
    assert (shrunk.total_vram, shrunk.vram_budget_bytes) == (8 * GIB, 8 * GIB)
    assert shrunk.available_vram == 8 * GIB
    other.refresh_from_db()
    assert other.available_ram == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    "facts",
    [
        {"approved_at": None, "approved_by": ""},
        {"left_at": NOW, "liveness": Liveness.OFFLINE},
    ],
)
def test_of_who_is_pending_or_has_left_only_the_time_is_kept(facts: dict[str, Any]) -> None:
    node = make_node(**facts)
    node = after(node, beat(node.pk, available_ram=5, gpu_vendor="nvidia"))
    assert (node.last_heartbeat, node.available_ram, node.gpu_vendor) == (SOON, 0, "")


@pytest.mark.django_db
def test_a_node_that_fell_silent_is_listened_to_again() -> None:
    node = make_node(liveness=Liveness.OFFLINE)
    assert after(node, beat(node.pk, available_ram=5)).available_ram == 5


@pytest.mark.django_db
def test_a_retired_node_is_not_listened_to() -> None:
    node = make_node(retired_at=NOW, liveness=Liveness.OFFLINE)
    node = after(node, beat(node.pk, available_ram=5))
    assert (node.last_heartbeat, node.available_ram) == (NOW, 0)


@pytest.mark.django_db
def test_a_beat_changes_neither_liveness_nor_etag() -> None:
    node = make_node(liveness=Liveness.UNHEALTHY)
    node = after(node, beat(node.pk, available_ram=5))
    assert (node.liveness, node.liveness_changed_at) == (Liveness.UNHEALTHY, NOW)
    assert (node.version, node.updated_at) == (1, NOW)


@pytest.mark.django_db
def test_a_pending_node_does_not_get_in_by_beating() -> None:
    node = make_pending()
    after(node, beat(node.pk, available_vram=GIB))
    assert not BackendNode.objects.routable().exists()


@pytest.mark.django_db
def test_time_does_not_run_backwards() -> None:
    node = make_node()
    late = beat(node.pk, at=NOW - timedelta(seconds=5), available_ram=5)
    assert after(node, late).last_heartbeat == NOW


@pytest.mark.django_db
def test_two_beats_of_one_node_in_a_batch_add_up() -> None:
    node = make_node()
    node = after(
        node,
        beat(node.pk, at=SOON, available_ram=2),
        beat(node.pk, at=NOW, available_ram=1, available_disk=7),
    )
    assert (node.last_heartbeat, node.available_ram, node.available_disk) == (SOON, 2, 7)


@pytest.mark.django_db
def test_unknown_nodes_are_passed_over() -> None:
    node = make_node()
    node = after(node, beat(uuid4(), available_ram=1), beat(node.pk))
    assert node.last_heartbeat == SOON


@pytest.mark.django_db
def test_a_thousand_beats_are_one_update(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    nodes = [make_node(f"gpu-{number}") for number in range(20)]
    with django_assert_num_queries(4) as asked:  # savepoint, setting, update, release
        beating.record([beat(node.pk, available_ram=5) for node in nodes * 50])
    assert sum("UPDATE nodes_backendnode" in query["sql"] for query in asked) == 1
    assert BackendNode.objects.filter(available_ram=5, last_heartbeat=SOON).count() == 20


@pytest.mark.django_db
def test_nobody_waits_for_the_disk() -> None:
    node = make_node()
    beating.record([beat(node.pk)])
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("off",)


@pytest.mark.django_db
def test_no_beats_ask_nothing(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(2):  # the savepoint
        beating.record([])


@pytest.mark.django_db
def test_no_index_has_to_follow_a_beat() -> None:
    touched = {*beating.REPORTED, "last_heartbeat", "vram_budget_bytes"}
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'nodes_backendnode'")
        indexes = [definition for (definition,) in cursor.fetchall()]
    assert indexes
    assert not [index for index in indexes if any(name in index for name in touched)]


@pytest.mark.django_db(transaction=True)
def test_processes_that_flush_the_same_nodes_do_not_deadlock() -> None:
    ids = [make_node(f"gpu-{number}").pk for number in range(30)]

    def flush(number: int) -> None:
        order = ids if number % 2 else ids[::-1]
        try:
            for second in range(10):
                at = NOW + timedelta(seconds=10 * second + number)
                beating.record([beat(node_id, at=at, available_ram=second) for node_id in order])
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(flush, range(8)))
    newest = NOW + timedelta(seconds=97)
    assert BackendNode.objects.filter(last_heartbeat=newest).count() == 30


@pytest.mark.django_db(transaction=True)
def test_a_door_without_django_runs_the_same_statement() -> None:
    node = make_node()
    database = connection.settings_dict
    with psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        password=database["PASSWORD"],
        dbname=database["NAME"],
    ) as door:
        door.execute(statements.UNSYNCED)
        told = [beat(node.pk, total_vram=UINT64_MAX, available_ram=5), beat(uuid4())]
        door.execute(statements.RECORD_BEATS, beating.parameters(told))
    node.refresh_from_db()
    assert (node.total_vram, node.available_ram, node.last_heartbeat) == (UINT64_MAX, 5, SOON)
