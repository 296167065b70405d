import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from nodes.models import BackendNode
from nodes.services import replicas
from scheduling.models import LoadJob
from scheduling.services import jobs, placing, reaping, reserving
from scheduling.services.placing import NoCapacity
from scheduling.states import Cause, JobState
from tests.factories import GIB, NOW, make_model, make_node

LATER = NOW + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """No test here has a broker behind it."""


def reserved(node: BackendNode) -> int:
    node.refresh_from_db()
    return int(node.reserved_vram)


def host(**changes: Any) -> BackendNode:
    """A node with 8 GiB and room for many replicas of a model that needs one of them."""
    make_model(vram_bytes=GIB)
    memory = {"total_vram": 24 * GIB, "available_vram": 8 * GIB}
    return make_node(max_replicas_per_model=40, **{**memory, **changes})


def place(node: BackendNode) -> LoadJob | None:
    try:
        return placing.place("llama", cause=Cause.OPERATOR, by="ada", now=NOW, node=node)
    except NoCapacity:
        return None


@pytest.mark.django_db(transaction=True)
def test_schedulers_and_endings_at_once_never_over_commit_and_never_leak() -> None:
    node = host(available_vram=20 * GIB)
    seen: list[int] = []

    def act(number: int) -> None:
        try:
            draw = random.Random(number)
            job = place(node)
            seen.append(reserved(BackendNode.objects.get(pk=node.pk)))
            if job is None or draw.random() < 0.4:
                return
            with ThreadPoolExecutor(2) as pair:  # two who end it: one takes it off
                list(pair.map(lambda _: _fail(job), range(2)))
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as crowd:
        list(crowd.map(act, range(120)))
    held = LoadJob.objects.reserving()
    assert reserved(node) == sum(job.reserved_vram for job in held) <= 20 * GIB
    assert max(seen) <= 20 * GIB
    assert {job.state for job in held} <= {JobState.PENDING}
    for job in held:
        jobs.cancel(job, "enough", now=NOW)
    assert reserved(node) == 0


def _fail(job: LoadJob) -> None:
    try:
        jobs.fail(job, "no luck", now=NOW, process=False)
    finally:
        connection.close()


@pytest.mark.django_db
def test_it_lasts_until_the_first_beat_after_the_load() -> None:
    node = host(last_heartbeat=NOW)
    job = place(node)
    assert job is not None
    LoadJob.objects.update(state=JobState.LOADED, finished_at=NOW)
    reaping.reap(now=LATER)
    assert reserved(node) == GIB
    BackendNode.objects.update(last_heartbeat=LATER)
    reaping.reap(now=LATER)
    reaping.reap(now=LATER)
    assert reserved(node) == 0
    job.refresh_from_db()
    assert job.reservation_ended_at == LATER


@pytest.mark.django_db
def test_nobody_waits_for_the_reaper_when_the_node_reports_the_memory_itself() -> None:
    node = host(last_heartbeat=NOW, available_vram=GIB)
    assert place(node)
    LoadJob.objects.update(state=JobState.LOADED, finished_at=NOW)
    assert place(node) is None
    BackendNode.objects.update(last_heartbeat=LATER)  # and still one GiB is free
    assert place(node)


@pytest.mark.django_db
def test_a_beat_during_the_load_does_not_end_it() -> None:
    node = host(last_heartbeat=LATER)
    assert place(node)
    reaping.reap(now=LATER)
    assert reserved(node) == GIB


@pytest.mark.django_db
def test_it_ends_with_a_job_whose_replica_was_taken_away() -> None:
    node = host()
    job = place(node)
    assert job is not None
    replicas.remove(node.replicas.all(), reason="worker left")
    reaping.reap(now=LATER)
    assert reserved(node) == 0


@pytest.mark.django_db
def test_what_was_given_back_is_not_given_back_again() -> None:
    node = host()
    ids = [job.pk for job in (place(node), place(node), place(node)) if job]
    reserving.end(ids[:1], now=NOW)
    reserving.end(ids[:2], now=NOW)
    assert reserved(node) == GIB


@pytest.mark.django_db
def test_what_no_job_accounts_for_is_set_right() -> None:
    node = make_node(reserved_vram=3 * GIB)
    assert reserving.mend() == 1
    assert reserved(node) == 0
    assert reserving.mend() == 0
