from typing import Any

import pytest
from celery import current_app
from django.db import transaction

from clustermgr.lib.queue import after_commit


@pytest.mark.django_db(transaction=True)
def test_the_doorbell_rings_after_the_commit_and_not_before(queued: list[tuple[Any, ...]]) -> None:
    with transaction.atomic():
        after_commit("clustermgr.pulse")
        assert queued == []
    assert queued == [("clustermgr.pulse",)]


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_change_rings_nothing(queued: list[tuple[Any, ...]]) -> None:
    with transaction.atomic():
        after_commit("clustermgr.pulse")
        transaction.set_rollback(True)
    assert queued == []


@pytest.mark.django_db(transaction=True)
def test_a_dead_broker_does_not_undo_what_was_committed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(current_app.conf, "broker_url", "pgmq://nobody@127.0.0.1:1/none")
    with current_app.connection_for_write("pgmq://nobody@127.0.0.1:1/none") as dead:
        monkeypatch.setattr(
            current_app, "send_task", lambda name, args: dead.ensure_connection(max_retries=1)
        )
        with transaction.atomic():
            after_commit("clustermgr.pulse")
    assert "could not queue task" in caplog.text
