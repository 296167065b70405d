import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import transaction

from clustermgr.lib.queue import after_commit

# A process of its own: Celery reads its broker once
RING = """
import django
django.setup()
from django.db import transaction
from clustermgr.lib.queue import after_commit
with transaction.atomic():
    after_commit("clustermgr.pulse")
print("went on")
"""


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


def test_a_dead_broker_neither_fails_nor_delays_what_was_committed() -> None:
    env = {
        **os.environ,
        "CELERY_BROKER_URL": "pgmq://nobody@127.0.0.1:1/none",
        "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
    }
    result = subprocess.run(
        [sys.executable, "-c", RING], env=env, capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "went on\n", result
    assert "could not queue task" in result.stderr
