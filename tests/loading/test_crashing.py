from datetime import datetime, timedelta
from typing import Any

import pytest

from nodes.models import ClusterEvent, NodeModel
from nodes.services import replicas
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import crashing, jobs, reconciling
from scheduling.states import JobState
from tests.factories import NOW, make_job, make_model, make_node, make_rule

pytestmark = pytest.mark.django_db


def come_up(*, now: datetime) -> bool:
    """Whether a tick loads it; the worker has it in the same moment."""
    reconciling.tick(now=now)
    job = LoadJob.objects.active().first()
    if job is None:
        return False
    claimed = jobs.claim(job.pk, by="us", now=now)
    assert claimed is not None
    assert jobs.stage(claimed, address="gpu-1:1", now=now)
    assert jobs.begin_loading(claimed, options=b"", within=timedelta(minutes=1), now=now)
    return jobs.publish(claimed, now=now)


def die(*, now: datetime) -> None:
    lost = crashing.bury(NodeModel.objects.all(), reason="died", now=now)
    crashing.settle(lost, now=now)


@pytest.fixture(autouse=True)
def _wanted(queued: list[tuple[Any, ...]]) -> None:
    make_node()
    make_model()
    make_rule(min_replicas=1)


def test_a_process_that_dies_once_or_twice_is_replaced_at_once() -> None:
    for _ in range(2):
        assert come_up(now=NOW)
        die(now=NOW)
    assert come_up(now=NOW)


def test_what_was_stopped_or_lost_with_its_node_is_no_death() -> None:
    for _ in range(5):
        assert come_up(now=NOW)
        replicas.lose(NodeModel.objects.all(), reason="Its node went offline.", now=NOW)
    assert come_up(now=NOW)
    die(now=NOW)
    assert come_up(now=NOW)
    assert not ClusterEvent.objects.filter(kind="model.crashes").exists()


def test_a_model_whose_processes_die_again_and_again_waits_longer_each_time() -> None:
    now, waited = NOW, []
    for _ in range(2):
        assert come_up(now=now)
        die(now=now)
    for _ in range(3):
        assert come_up(now=now)
        die(now=now)
        assert not come_up(now=now)
        retry_at = ModelLoadInfo.objects.get().retry_at
        assert retry_at is not None
        waited.append((retry_at - now).total_seconds())
        now = retry_at
    assert waited == [10, 20, 40]
    event = ClusterEvent.objects.filter(kind="model.crashes").latest("pk")
    assert event.reason == "5 processes of it came up and died in the last 10 minutes."


def test_what_died_long_ago_or_was_edited_since_is_forgiven() -> None:
    for minutes in (0, 20, 40):
        assert come_up(now=NOW + timedelta(minutes=minutes))
        die(now=NOW + timedelta(minutes=minutes))
    LoadJob.objects.update(finished_at=NOW + timedelta(minutes=40), config_revision="r0")
    assert come_up(now=NOW + timedelta(minutes=41))
    die(now=NOW + timedelta(minutes=41))
    assert come_up(now=NOW + timedelta(minutes=41))
    assert LoadJob.objects.filter(state=JobState.LOADED).count() == 5


def test_whoever_gives_a_sign_of_life_after_all_keeps_its_load() -> None:
    job = make_job(make_node("gpu-2"))
    claimed = jobs.claim(job.pk, by="slow", now=NOW)
    assert claimed is not None
    assert claimed.lease_until is not None
    late = claimed.lease_until + timedelta(seconds=1)
    (seen,) = LoadJob.objects.abandoned(late)
    LoadJob.objects.update(lease_until=late + timedelta(minutes=1))  # while the reaper looks
    assert not jobs.take_over(seen, now=late)
    assert LoadJob.objects.get().claimed_by == "slow"
