from datetime import timedelta
from typing import Any

import pytest

from scheduling.models import LoadJob
from scheduling.presenting.words import job_line
from scheduling.services import jobprogress, jobs, reconciling
from scheduling.states import JobState
from tests.factories import NOW, make_job, make_model, make_node, make_rule

pytestmark = pytest.mark.django_db

DOWNLOADED = {"phase": "starting", "percentage": 100.0, "current_bytes": 6, "total_bytes": 6}


@pytest.fixture
def claimed(queued: list[tuple[Any, ...]]) -> LoadJob:
    make_node()
    make_model()
    make_rule(min_replicas=1)
    reconciling.tick(now=NOW)
    job = jobs.claim(LoadJob.objects.get().pk, by="us", now=NOW)
    assert job is not None
    return job


def test_each_phase_begins_at_nothing(claimed: LoadJob) -> None:
    LoadJob.objects.update(progress_at=NOW, last_error="gpu-1 did not listen yet.", **DOWNLOADED)
    assert jobs.stage(claimed, address="gpu-1:1", now=NOW)
    LoadJob.objects.update(progress_at=NOW, **DOWNLOADED)
    assert jobs.begin_loading(claimed, options=b"", within=timedelta(minutes=1), now=NOW)
    job = LoadJob.objects.get()
    assert (job.phase, job.percentage, job.current_bytes, job.total_bytes) == ("", 0, 0, 0)
    assert job.last_error == ""  # what stood in the way does no more


def test_a_backend_that_loads_shows_for_how_long_and_no_bar(claimed: LoadJob) -> None:
    assert jobs.stage(claimed, address="gpu-1:1", now=NOW)
    assert jobs.begin_loading(claimed, options=b"", within=timedelta(minutes=1), now=NOW)
    line = job_line(LoadJob.objects.get(), now=NOW + timedelta(seconds=40))
    assert (line.bar, line.detail) == (None, "for 40 s")


def test_the_pace_of_staging_is_measured_since_it_began() -> None:
    job = make_job(
        make_node(),
        state=JobState.STAGING,
        lease_until=NOW,
        started_at=NOW - timedelta(minutes=10),  # it was installing until now
        progress_at=NOW + timedelta(seconds=10),
        current_bytes=100,
        total_bytes=400,
    )
    assert jobprogress.eta(job) == timedelta(seconds=30)
