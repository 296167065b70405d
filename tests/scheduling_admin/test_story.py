from collections import defaultdict
from datetime import timedelta

import pytest
from django.test import Client

from nodes.backendrpc import Health
from scheduling.models import LoadJob
from scheduling.services import jobs, observing
from scheduling.states import JobState
from tests.factories import NOW, make_job, make_model, make_node, make_replica
from tests.scheduling_admin.test_pages import page_of, text

pytestmark = pytest.mark.django_db


def test_a_models_events_tell_what_became_of_its_replicas_and_where(viewer: Client) -> None:
    make_model("llama")
    pending = make_job(make_node("gpu-1"), index=2)
    job = jobs.claim(pending.pk, by="tests", now=NOW)
    assert job is not None
    jobs.fail(job, "The disk is full.", now=NOW + timedelta(seconds=75), process=False)
    story = text(viewer, page_of("llama", "events"))
    for words in ("llama#2 on", "gpu-1", "The disk is full."):
        assert words in story
    assert "took 1 min" in text(viewer, page_of("llama", "jobs"))


def test_a_process_that_died_is_part_of_the_story(viewer: Client) -> None:
    make_model("llama")
    replica = make_replica(make_node("gpu-1"), misses=3, last_confirmed_at=NOW - timedelta(hours=1))
    observing.note(defaultdict(list, {Health.GONE: [replica.pk]}), now=NOW)
    story = text(viewer, page_of("llama", "events"))
    for words in ("Replica lost", "llama#0 on", "Nobody answers at its address."):
        assert words in story


def test_a_load_tells_how_long_its_process_lived(viewer: Client) -> None:
    make_model("llama")
    job = make_job(make_node("gpu-1"), state=JobState.LOADED, started_at=NOW, finished_at=NOW)
    replica = make_replica(job.node, misses=3)
    LoadJob.objects.update(replica=replica)
    observing.note(defaultdict(list, {Health.GONE: [replica.pk]}), now=NOW + timedelta(minutes=5))
    assert "died after 5 min" in text(viewer, page_of("llama", "jobs"))
