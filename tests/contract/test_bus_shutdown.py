import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import Interrupted
from tests.contract.responder import responding, silence
from tests.services import until

URL = settings.CLUSTER.nats_url
LONG = timedelta(minutes=15)
WAITERS = 200


def test_two_hundred_waiting_threads_are_freed_at_once(
    bus: NatsBus, subject: str, patient: None
) -> None:
    def wait(number: int) -> None:
        bus.request(subject, b"", timeout=LONG, events=f"{subject}.{number}")

    with responding(URL, subject, silence) as heard, ThreadPoolExecutor(WAITERS) as pool:
        waiting = [pool.submit(wait, number) for number in range(WAITERS)]
        try:
            until(lambda: len(heard) == WAITERS)
        finally:
            bus.stop_waiting()
        assert all(isinstance(future.exception(60), Interrupted) for future in waiting)


def test_a_signal_handler_may_stop_the_waiting_of_its_own_thread(
    bus: NatsBus, subject: str
) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: bus.stop_waiting())
    main = threading.main_thread().ident or 0

    def knock(heard: list[bytes]) -> None:
        until(lambda: bool(heard))
        signal.pthread_kill(main, signal.SIGUSR1)

    try:
        with responding(URL, subject, silence) as heard, ThreadPoolExecutor() as pool:
            pool.submit(knock, heard)
            with pytest.raises(Interrupted):
                bus.request(subject, b"", timeout=LONG)
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_after_that_every_call_is_refused_at_once(bus: NatsBus, subject: str) -> None:
    bus.stop_waiting()
    with responding(URL, subject) as heard:
        with pytest.raises(Interrupted):
            bus.request(subject, b"", timeout=LONG)
        with pytest.raises(Interrupted):
            bus.publish(subject, b"")
        assert heard == []


def test_closing_ends_the_thread_frees_the_waiting_and_is_final(bus: NatsBus, subject: str) -> None:
    before = set(threading.enumerate())
    with responding(URL, subject, silence) as heard, ThreadPoolExecutor() as pool:
        waiting = pool.submit(bus.request, subject, b"", timeout=LONG)
        until(lambda: bool(heard))
        bus.close()
        assert isinstance(waiting.exception(60), Interrupted)
    assert set(threading.enumerate()) <= before
    bus.close()
    assert not bus.status().connected
    with pytest.raises(Interrupted):
        bus.publish(subject, b"")
