from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection

from clustermgr.lib.errors import Conflict, DomainError, InvalidInput, NotFound
from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import placing, reconciling
from scheduling.services.placing import MakingRoom, ModelFailing, NoCapacity
from scheduling.states import Cause, JobState
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica, make_rule

AT_ONCE = 8


def place(model: str = "llama", cause: Cause = Cause.OPERATOR) -> LoadJob:
    return placing.place(model, cause=cause, by="ada", now=NOW)


@pytest.mark.django_db
def test_a_request_joins_the_load_that_is_under_way() -> None:
    make_node(max_replicas_per_model=2)
    make_model()
    first = place(cause=Cause.REQUEST)
    assert place(cause=Cause.REQUEST) == first
    assert place(cause=Cause.OPERATOR) != first


@pytest.mark.django_db
def test_a_load_of_an_older_revision_is_not_joined() -> None:
    make_node(max_replicas_per_model=2)
    definition = make_model()
    first = place(cause=Cause.REQUEST)
    definition.config_revision = "r2"
    definition.save()
    second = place(cause=Cause.REQUEST)
    assert second != first
    assert second.config_revision == "r2"


@pytest.mark.django_db
def test_an_operator_may_name_the_node() -> None:
    make_node("gpu-1")
    other = make_node("gpu-2")
    make_model()
    job = placing.place("llama", cause=Cause.OPERATOR, by="ada", now=NOW, node=other)
    assert job.node == other
    with pytest.raises(NoCapacity, match="gpu-2: its 1 slot for llama is taken"):
        placing.place("llama", cause=Cause.OPERATOR, by="ada", now=NOW, node=other)


@pytest.mark.django_db
def test_a_load_that_failed_is_tried_elsewhere_until_one_succeeds() -> None:
    first, second = make_node("gpu-1", available_vram=20 * GIB), make_node("gpu-2")
    make_model(failures=1)
    make_job(first, state=JobState.FAILED, finished_at=NOW - timedelta(minutes=1), due_at=None)
    assert place().node == second
    LoadJob.objects.active().delete()
    NodeModel.objects.all().delete()
    LoadJob.objects.update(finished_at=NOW - timedelta(hours=1))
    assert place().node == first


@pytest.mark.django_db
def test_no_capacity_comes_with_the_reason_and_the_smallest_fix() -> None:
    make_node(total_vram=24 * GIB, available_vram=2 * GIB)
    make_model(vram_bytes=8 * GIB)
    with pytest.raises(NoCapacity, match=r"free 6\.0 GiB VRAM on gpu-1") as refused:
        place()
    assert refused.value.code == "no_capacity"


@pytest.mark.django_db
def test_the_maximum_holds_for_requests_too() -> None:
    make_node(max_replicas_per_model=2)
    make_model()
    make_rule(max_replicas=1)
    place()
    with pytest.raises(Conflict, match="raise max_replicas"):
        place()


@pytest.mark.django_db
def test_requests_wait_for_a_failing_model_and_operators_need_not() -> None:
    make_node()
    make_model(failures=1, retry_at=NOW + timedelta(minutes=1), last_error="bad weights")
    with pytest.raises(ModelFailing, match="bad weights"):
        place(cause=Cause.REQUEST)
    assert place(cause=Cause.OPERATOR).model_name == "llama"


@pytest.mark.django_db
def test_a_model_without_definition_or_with_a_broken_rule_is_refused() -> None:
    make_node()
    with pytest.raises(NotFound):
        place()
    make_model()
    make_rule(selector="tier=(")
    with pytest.raises(InvalidInput):
        place()


@pytest.mark.django_db
def test_room_is_made_by_unloading_what_may_leave_and_the_next_try_succeeds() -> None:
    node = make_node(total_vram=24 * GIB, available_vram=2 * GIB)
    make_model("old", vram_bytes=20 * GIB)
    victim = make_replica(node, "old", config_revision="r1")
    make_model(vram_bytes=8 * GIB)
    for _ in range(2):
        with pytest.raises(MakingRoom):
            place()
    victim.refresh_from_db()
    assert victim.state == ReplicaState.UNLOADING
    victim.delete()  # the worker has stopped it, and reports its memory as free
    node.available_vram = 22 * GIB
    node.save()
    assert place().node == node


@pytest.mark.django_db
def test_nobody_else_is_sent_away_before_the_node_reports_what_the_first_one_freed() -> None:
    node = make_node(total_vram=24 * GIB, available_vram=4 * GIB, last_heartbeat=NOW)
    for name in ("first", "second"):
        make_model(name, vram_bytes=8 * GIB)
    make_job(node, "first", state=JobState.LOADED, finished_at=NOW, freed_at=NOW)
    kept = make_replica(node, "second", config_revision="r1")
    make_model(vram_bytes=8 * GIB)
    with pytest.raises(MakingRoom, match="what it frees is known in a moment"):
        place()
    kept.refresh_from_db()
    assert kept.state == ReplicaState.LOADED
    node.available_vram, node.last_heartbeat = 12 * GIB, NOW + timedelta(seconds=10)
    node.save()
    assert place().node == node


@pytest.mark.django_db
@pytest.mark.parametrize(
    "kept", [{"pinned": True}, {"min_replicas": 1}, {"priority": 5}, {"spread_all": True}]
)
def test_what_may_not_leave_stays(kept: dict[str, int]) -> None:
    node = make_node(total_vram=24 * GIB, available_vram=2 * GIB)
    make_model("old", vram_bytes=20 * GIB)
    make_rule("old", **kept)
    victim = make_replica(node, "old", config_revision="r1")
    make_model(vram_bytes=8 * GIB)
    with pytest.raises(NoCapacity):
        place()
    victim.refresh_from_db()
    assert victim.state == ReplicaState.LOADED


@pytest.mark.django_db
def test_who_answers_a_request_is_not_evicted() -> None:
    node = make_node(total_vram=24 * GIB, available_vram=2 * GIB)
    make_model("old", vram_bytes=20 * GIB)
    make_replica(node, "old", config_revision="r1", in_flight=1)
    make_model(vram_bytes=8 * GIB)
    with pytest.raises(NoCapacity):
        place()


@pytest.mark.django_db(transaction=True)
def test_placers_and_reconcilers_at_once_never_take_a_slot_or_a_byte_twice() -> None:
    for number in range(3):
        make_node(
            f"gpu-{number}",
            max_replicas_per_model=2,
            total_vram=24 * GIB,
            available_vram=10 * GIB,
        )
    for name in ("llama", "qwen"):
        make_model(name, vram_bytes=4 * GIB)
        make_rule(name, min_replicas=3)
    start = Barrier(AT_ONCE)

    def work(number: int) -> None:
        start.wait()
        try:
            if number % 2:
                reconciling.tick(now=NOW)
            else:
                place(("llama", "qwen")[number % 4 // 2])
        except DomainError:
            pass  # there may be no room left: that is the point
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, range(AT_ONCE)))
    reconciling.tick(now=NOW)  # whoever found the lock taken has left the rest to this one
    jobs = list(LoadJob.objects.all())
    slots = {(job.node_id, job.model_name, job.replica_index) for job in jobs}
    assert len(slots) == len(jobs) == NodeModel.objects.count()
    assert len(jobs) == 6  # two of 4 GiB on each of three nodes with 10 GiB
    for node in {job.node_id for job in jobs}:
        assert sum(job.reserved_vram for job in jobs if job.node_id == node) <= 10 * GIB
