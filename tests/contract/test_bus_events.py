import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import Interrupted, NodeSilent, NodeUnreachable
from tests.contract.nats_server import Server
from tests.contract.responder import echo, responding
from tests.services import until

SOON = timedelta(minutes=1)


async def work(client: Client, message: Msg) -> None:
    subject = message.data.decode()
    for step in range(20):
        await client.publish(subject, b"%d" % step)
    await message.respond(b"done")
    await client.publish(subject, b"too late")


async def report_only(client: Client, message: Msg) -> None:
    await client.publish(message.data.decode(), b"working")


def progress_listeners(server: Server) -> int:
    return sum(
        subject.startswith("progress.")
        for connection in server.connections()
        for subject in connection.get("subscriptions_list", [])
    )


def test_events_come_in_order_on_the_callers_thread_and_before_the_answer(
    server: Server, own_bus: NatsBus
) -> None:
    seen: list[tuple[bytes, int]] = []
    with responding(server.url, "work", work):
        answer = own_bus.request(
            "work",
            b"progress.one",
            timeout=SOON,
            events="progress.one",
            on_event=lambda event: seen.append((event, threading.get_ident())),
        )
    assert answer == b"done"
    assert seen == [(b"%d" % step, threading.get_ident()) for step in range(20)]
    until(lambda: progress_listeners(server) == 0)


def test_no_event_is_lost_when_a_hundred_callers_share_the_connection(
    server: Server, own_bus: NatsBus, patient: None
) -> None:
    def ask(number: int) -> list[bytes]:
        seen: list[bytes] = []
        subject = f"progress.{number}"
        own_bus.request(
            "work", subject.encode(), timeout=SOON, events=subject, on_event=seen.append
        )
        return seen

    with responding(server.url, "work", work), ThreadPoolExecutor(100) as pool:
        complete = [b"%d" % step for step in range(20)]
        assert all(seen == complete for seen in pool.map(ask, range(300)))
    until(lambda: progress_listeners(server) == 0)


def test_an_exception_in_on_event_reaches_the_caller_and_ends_the_subscription(
    server: Server, own_bus: NatsBus
) -> None:
    def explode(event: bytes) -> None:
        assert progress_listeners(server) == 1
        raise KeyError(event)

    with responding(server.url, "work", report_only):
        with pytest.raises(KeyError, match="working"):
            own_bus.request(
                "work", b"progress.x", timeout=SOON, events="progress.x", on_event=explode
            )
        until(lambda: progress_listeners(server) == 0)


def test_silence_and_absence_end_the_subscription(server: Server, own_bus: NatsBus) -> None:
    seen: list[bytes] = []
    brief = timedelta(seconds=2)
    with responding(server.url, "work", report_only), pytest.raises(NodeSilent):
        own_bus.request(
            "work", b"progress.s", timeout=brief, events="progress.s", on_event=seen.append
        )
    assert seen == [b"working"]
    with pytest.raises(NodeUnreachable):
        own_bus.request("nobody", b"", timeout=SOON, events="progress.n", on_event=seen.append)
    until(lambda: progress_listeners(server) == 0)


def test_an_interrupted_wait_ends_the_subscription(server: Server, own_bus: NatsBus) -> None:
    seen: list[bytes] = []

    def wait() -> None:
        own_bus.request(
            "work", b"progress.i", timeout=SOON, events="progress.i", on_event=seen.append
        )

    with responding(server.url, "work", report_only), ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait)
        until(lambda: seen == [b"working"])
        own_bus.stop_waiting()
        assert isinstance(waiting.exception(60), Interrupted)
        until(lambda: progress_listeners(server) == 0)


def test_a_callback_may_itself_use_the_bus(server: Server, own_bus: NatsBus) -> None:
    asked: list[bytes] = []
    with responding(server.url, "work", work), responding(server.url, "status", echo):
        own_bus.request(
            "work",
            b"progress.nested",
            timeout=SOON,
            events="progress.nested",
            on_event=lambda event: asked.append(own_bus.request("status", event, timeout=SOON)),
        )
    assert len(asked) == 20
