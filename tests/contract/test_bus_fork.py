import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any

from clustermgr.lib.bus import NatsBus
from tests.contract import hammer
from tests.contract.nats_server import Server
from tests.contract.responder import responding
from tests.services import until

FORK = multiprocessing.get_context("fork")


def child(bus: NatsBus, enough: Event, reports: "SimpleQueue[Any]") -> None:
    with hammer.hammering(bus, "echo") as outcomes:
        enough.wait()
        at_the_end = hammer.ask_once_each(bus, "echo")
    reports.put((set(outcomes), at_the_end))


@contextmanager
def two_children(bus: NatsBus) -> Iterator[list[int]]:
    """Their pids; when the block ends they must be well, and then they go."""
    enough, reports = FORK.Event(), FORK.SimpleQueue()
    arguments = (bus, enough, reports)
    children = [FORK.Process(target=child, args=arguments, daemon=True) for _ in range(2)]
    for process in children:
        process.start()
    yield [process.pid or 0 for process in children]
    enough.set()
    for seen, at_the_end in (reports.get(), reports.get()):
        assert seen <= hammer.ALLOWED
        assert at_the_end == [hammer.ANSWERED] * hammer.THREADS
    for process in children:
        process.join(60)
        assert process.exitcode == 0


def everybody_asks(heard: list[bytes], pids: list[int]) -> bool:
    asked = Counter(heard)
    return all(asked[str(pid).encode()] >= hammer.THREADS for pid in pids)


def test_forked_processes_have_their_own_connections_and_survive_a_restart(
    server: Server, own_bus: NatsBus
) -> None:
    own_bus.publish("any", b"")  # connected before the fork: the children inherit the socket
    (mine,) = server.connections()
    with responding(server.url, "echo") as heard, two_children(own_bus) as theirs:
        pids = [os.getpid(), *theirs]
        with hammer.hammering(own_bus, "echo") as outcomes:
            until(lambda: everybody_asks(heard, pids))
            connections = {row["name"]: row["cid"] for row in server.connections()}
            assert set(connections) == {f"clustermgr-{pid}" for pid in pids}
            assert connections[mine["name"]] == mine["cid"]
            server.stop()
            until(lambda: "NotConnected" in outcomes)
            heard.clear()
            server.start()
            until(lambda: everybody_asks(heard, pids))
        assert set(outcomes) <= hammer.ALLOWED


def test_a_child_may_come_and_go_without_disturbing_its_parent(
    server: Server, own_bus: NatsBus
) -> None:
    with responding(server.url, "echo"):
        own_bus.publish("any", b"")
        (mine,) = server.connections()
        process = FORK.Process(target=own_bus.close)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert hammer.ask_once_each(own_bus, "echo") == [hammer.ANSWERED] * hammer.THREADS
        assert [row["cid"] for row in server.connections()] == [mine["cid"]]
