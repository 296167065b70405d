import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NodeSilent, NotConnected
from tests.contract import hammer
from tests.contract.nats_server import Server
from tests.contract.responder import responding, silence
from tests.services import until

SOON = timedelta(minutes=1)
BRIEF = timedelta(seconds=0.2)


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


def test_a_server_that_is_down_at_the_start_is_found_when_it_comes(down: Server) -> None:
    bus = NatsBus(down.settings)
    with pytest.raises(NotConnected, match="Connect call failed"):
        bus.request("echo", b"", timeout=BRIEF)
    before = bus.status()
    assert not before.connected
    assert "Connect call failed" in before.reason
    down.start()
    until(lambda: bus.status().connected)
    assert bus.status().since > before.since
    assert bus.status().reason == ""
    with responding(down.url, "echo"):
        assert bus.request("echo", b"hello", timeout=SOON) == b"hello"
    bus.close()


def test_a_call_made_in_a_short_outage_waits_for_its_end(down: Server) -> None:
    bus = NatsBus(down.settings)
    with ThreadPoolExecutor() as pool:
        told = pool.submit(bus.publish, "any", b"")
        until(lambda: "Connect call failed" in bus.status().reason)
        down.start()
        told.result(60)
    bus.close()


def test_being_cut_off_is_told_long_before_the_timeout_and_says_nothing_of_the_node(
    server: Server, own_bus: NatsBus
) -> None:
    own_bus.publish("any", b"")
    server.stop()
    began = time.monotonic()
    with pytest.raises(NotConnected):
        own_bus.request("echo", b"", timeout=timedelta(minutes=15), events="progress")
    assert time.monotonic() - began < 60


def test_what_was_asked_or_told_in_an_outage_is_never_delivered_later(
    server: Server, own_bus: NatsBus
) -> None:
    own_bus.publish("any", b"")
    server.stop()
    until(lambda: not own_bus.status().connected)
    with ThreadPoolExecutor() as pool:
        told = pool.submit(own_bus.publish, "late", b"told")
        asked = pool.submit(own_bus.request, "late", b"asked", timeout=BRIEF)
        assert isinstance(told.exception(60), NotConnected)
        assert isinstance(asked.exception(60), NotConnected)
    server.start()
    with responding(server.url, "late") as heard:
        until(lambda: own_bus.status().connected)
        own_bus.request("late", b"now", timeout=SOON)
        assert heard == [b"now"]


def test_an_answer_still_counts_when_the_server_restarted_meanwhile(
    server: Server, own_bus: NatsBus
) -> None:
    finish = threading.Event()
    events: list[bytes] = []

    async def slowly(client: Client, message: Msg) -> None:
        await asyncio.to_thread(finish.wait)
        await client.publish("progress", b"finishing")
        await message.respond(b"done")

    with responding(server.url, "slow", slowly) as heard, ThreadPoolExecutor() as pool:
        answer = pool.submit(
            own_bus.request, "slow", b"", timeout=SOON, events="progress", on_event=events.append
        )
        until(lambda: heard == [b""])
        server.stop()
        until(lambda: not own_bus.status().connected)
        server.start()
        until(lambda: own_bus.status().connected)
        finish.set()
        assert answer.result(60) == b"done"
        assert events == [b"finishing"]


def test_an_answer_that_the_outage_swallowed_is_silence_at_the_deadline(
    server: Server, own_bus: NatsBus
) -> None:
    with responding(server.url, "slow", silence) as heard, ThreadPoolExecutor() as pool:
        answer = pool.submit(own_bus.request, "slow", b"", timeout=timedelta(seconds=1))
        until(lambda: heard == [b""])
        server.stop()
        assert isinstance(answer.exception(60), NodeSilent)


def test_a_hundred_threads_survive_a_restart_of_the_server(
    server: Server, own_bus: NatsBus
) -> None:
    with responding(server.url, "echo"), hammer.hammering(own_bus, "echo") as outcomes:
        until(lambda: outcomes.count(hammer.ANSWERED) >= 500)
        server.stop()
        until(lambda: outcomes.count("NotConnected") >= hammer.THREADS)
        server.start()
        answered = outcomes.count(hammer.ANSWERED)
        until(lambda: outcomes.count(hammer.ANSWERED) >= answered + 500)
        assert hammer.ask_once_each(own_bus, "echo") == [hammer.ANSWERED] * hammer.THREADS
    assert set(outcomes) <= hammer.ALLOWED
    assert len(server.connections()) == 1
