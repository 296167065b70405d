from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import transaction

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.bus.exchange import AT_ONCE
from clustermgr.lib.errors import Interrupted, NodeSilent, NodeUnreachable
from tests.contract.nats_server import Server
from tests.contract.responder import responding, silence
from tests.services import until

URL = settings.CLUSTER.nats_url
LONG = timedelta(minutes=15)


def test_answers_come_in_the_order_of_the_questions(bus: NatsBus, subject: str) -> None:
    subjects = [f"{subject}.{number}" for number in range(3 * AT_ONCE)]
    with responding(URL, f"{subject}.*"):
        assert bus.request_each(subjects, b"?", timeout=LONG) == [b"?"] * len(subjects)


def test_each_has_an_outcome_of_its_own(bus: NatsBus, subject: str) -> None:
    subjects = [f"{subject}.{word}" for word in ("silent", "away", "there")]
    with ExitStack() as workers:
        workers.enter_context(responding(URL, subjects[0], silence))
        workers.enter_context(responding(URL, subjects[2]))
        silent, away, there = bus.request_each(subjects, b"?", timeout=timedelta(seconds=3))
    assert isinstance(silent, NodeSilent)
    assert isinstance(away, NodeUnreachable)
    assert there == b"?"


def test_nobody_is_asked_nothing(bus: NatsBus) -> None:
    assert bus.request_each([], b"", timeout=LONG) == []


def test_a_shutdown_ends_all_questions(server: Server, own_bus: NatsBus) -> None:
    with responding(server.url, "many.*", silence) as heard, ThreadPoolExecutor() as pool:
        waiting = pool.submit(own_bus.request_each, ["many.1", "many.2"], b"", timeout=LONG)
        until(lambda: len(heard) == 2)
        own_bus.stop_waiting()
        assert isinstance(waiting.exception(60), Interrupted)


@pytest.mark.django_db
def test_not_in_a_transaction(bus: NatsBus, subject: str) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="No network in a transaction"):
        bus.request_each([subject], b"", timeout=LONG)
