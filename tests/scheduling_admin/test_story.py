from datetime import timedelta

import pytest
from django.test import Client

from scheduling.services import jobs
from tests.factories import NOW, make_job, make_model, make_node
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
