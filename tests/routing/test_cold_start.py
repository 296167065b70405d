import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clustermgr.lib.offloop import off_loop
from nodes.models import NodeLabel, NodeModel
from nodes.states import LabelSource, ReplicaState
from scheduling.models import LoadJob, RouteLease
from scheduling.states import Cause, JobState
from tests.factories import NOW, make_model, make_node, make_replica, make_rule
from tests.routing.conftest import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]


def loaded() -> None:
    """What the executor does at the end of a load."""
    NodeModel.objects.update(
        state=ReplicaState.LOADED, config_revision="r1", address="gpu-1.example:50052"
    )
    LoadJob.objects.update(
        state=JobState.LOADED, finished_at=NOW, lease_until=None, claimed_by="", due_at=None
    )


async def until_a_load_is_wanted() -> LoadJob:
    while (job := await off_loop(LoadJob.objects.select_related("node").first)) is None:
        await asyncio.sleep(0.02)
    return job


def test_a_request_waits_for_the_load_that_it_began_and_is_served_when_it_is_ready(
    caller: Caller,
) -> None:
    make_model()
    make_node()

    async def story(it: Caller) -> Any:
        waiting = asyncio.create_task(it.route(timeout=20))
        job = await until_a_load_is_wanted()
        assert (job.cause, job.requested_by) == (Cause.REQUEST, "gateway")
        assert not waiting.done()
        await off_loop(loaded)
        return await waiting

    status, told = caller.run(story)
    assert (status, told["address"]) == (200, "gpu-1.example:50052")


def test_a_hundred_who_wait_begin_one_load_and_are_all_served(caller: Caller) -> None:
    make_model()
    make_node(max_replicas_per_model=4)

    async def story(it: Caller) -> list[Any]:
        waiting = [asyncio.create_task(it.route(timeout=20)) for _ in range(100)]
        await until_a_load_is_wanted()
        await off_loop(loaded)
        return await asyncio.gather(*waiting)

    assert {status for status, _ in caller.run(story)} == {200}
    assert LoadJob.objects.count() == 1
    assert NodeModel.objects.get().in_flight == 100


def test_whose_patience_ends_is_told_how_far_the_load_is_and_the_load_goes_on(
    caller: Caller,
) -> None:
    make_model()
    make_node()
    status, told = caller.run(lambda it: it.route(timeout=0))
    assert (status, told["code"]) == (503, "model_loading")
    assert told["loading"] == {
        "model": "llama",
        "state": "pending",
        "node": "gpu-1",
        "progress": 0.0,
        "bytes_sent": 0,
        "total_bytes": 0,
        "file_index": 0,
        "total_files": 0,
    }
    assert 5 <= int(caller.headers["retry-after"]) <= 300
    assert LoadJob.objects.active().count() == 1


def test_a_model_that_fits_nowhere_is_refused_with_the_placements_reason(caller: Caller) -> None:
    make_model()
    make_node(cordoned_at=NOW)
    status, told = caller.run(lambda it: it.route(timeout=30))
    assert (status, told["code"]) == (503, "no_capacity")
    assert "cordon" in told["detail"]
    assert caller.headers["retry-after"] == "30"


def test_a_model_that_fails_says_what_failed(caller: Caller) -> None:
    later = datetime.now(UTC) + timedelta(minutes=2)
    make_model(failures=3, retry_at=later, last_error="no such file")
    make_node()
    status, told = caller.run(lambda it: it.route(timeout=30))
    assert (status, told["code"]) == (503, "model_failing")
    assert "no such file" in told["detail"]
    assert 100 < int(caller.headers["retry-after"]) <= 120


def test_a_replica_where_the_rule_does_not_want_it_keeps_nobody_from_a_load(
    caller: Caller,
) -> None:
    """It still answers somebody, and may not be asked: a request must not wait for its end."""
    make_model("picky")
    make_rule("picky", selector="tier=fast")
    wanted = make_node("fast")
    NodeLabel.objects.create(node=wanted, key="tier", value="fast", source=LabelSource.ADMIN)
    make_replica(make_node("slow"), "picky", config_revision="r1", in_flight=1)
    status, told = caller.run(lambda it: it.route("picky", timeout=0))
    assert (status, told["code"]) == (503, "model_loading")
    assert told["loading"]["node"] == "fast"


def test_who_hangs_up_while_waiting_holds_nothing(caller: Caller) -> None:
    make_model()
    make_node()

    async def story(it: Caller) -> Any:
        hangs_up = asyncio.Event()
        waiting = asyncio.create_task(it.route(timeout=20, hangs_up=hangs_up))
        await until_a_load_is_wanted()
        hangs_up.set()
        await off_loop(loaded)
        return await waiting

    assert caller.run(story) == (0, None)
    assert not RouteLease.objects.exists()
    assert NodeModel.objects.get().in_flight == 0
