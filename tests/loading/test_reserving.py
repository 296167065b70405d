import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from nodes.models import BackendNode
from nodes.services import replicas
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import jobs, reaping, reserving
from scheduling.states import JobState
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica

LATER = NOW + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """No test here has a broker behind it."""


def reserved(node: BackendNode) -> int:
    node.refresh_from_db()
    return int(node.reserved_vram)


def place(node: BackendNode, index: int, amount: int = GIB) -> LoadJob | None:
    """What a scheduler does: memory, row and job, all or nothing."""
    try:
        with transaction.atomic():
            if not reserving.take(node.pk, amount):
                return None
            row = make_replica(node, index=index, state=ReplicaState.STAGING, address="")
            return make_job(node, index=index, replica=row, reserved_vram=amount)
    except IntegrityError:
        return None


@pytest.mark.django_db(transaction=True)
def test_schedulers_and_endings_at_once_never_over_commit_and_never_leak() -> None:
    node = make_node(total_vram=24 * GIB, available_vram=20 * GIB)
    make_model()
    seen: list[int] = []

    def act(number: int) -> None:
        try:
            draw = random.Random(number)
            job = place(node, draw.randrange(40))
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


@pytest.mark.django_db(transaction=True)
def test_a_reservation_outside_a_transaction_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="would leak"):
        reserving.take(make_node().pk, GIB)


@pytest.mark.django_db
def test_it_lasts_until_the_first_beat_after_the_load() -> None:
    node = make_node(total_vram=8 * GIB, available_vram=8 * GIB, last_heartbeat=NOW)
    job = place(node, 0)
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
def test_a_beat_during_the_load_does_not_end_it() -> None:
    node = make_node(total_vram=8 * GIB, available_vram=8 * GIB, last_heartbeat=LATER)
    assert place(node, 0)
    reaping.reap(now=LATER)
    assert reserved(node) == GIB


@pytest.mark.django_db
def test_it_ends_with_a_job_whose_replica_was_taken_away() -> None:
    node = make_node(total_vram=8 * GIB, available_vram=8 * GIB)
    job = place(node, 0)
    assert job is not None
    replicas.remove(node.replicas.all(), reason="worker left")
    reaping.reap(now=LATER)
    assert reserved(node) == 0


@pytest.mark.django_db
def test_what_was_given_back_is_not_given_back_again() -> None:
    node = make_node(total_vram=8 * GIB, available_vram=8 * GIB)
    ids = [job.pk for job in (place(node, 0), place(node, 1), place(node, 2)) if job]
    reserving.end(ids[:1], now=NOW)
    reserving.end(ids[:2], now=NOW)
    assert reserved(node) == GIB


@pytest.mark.django_db
def test_what_no_job_accounts_for_is_set_right() -> None:
    node = make_node(reserved_vram=3 * GIB)
    assert reserving.mend() == 1
    assert reserved(node) == 0
    assert reserving.mend() == 0
