"""Many threads that ask without a pause, and write down what became of every question."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import BusError, NodeSilent, NodeUnreachable, NotConnected

THREADS = 100
ANSWERED = "answered"
SWALLOWED = timedelta(seconds=1)  # when to ask again, if an outage took question or answer
ANYWAY = timedelta(minutes=1)  # nobody is away: a busy machine must not look like silence

# NodeUnreachable because the responder has to find its way back as well.
ALLOWED = {ANSWERED, *(kind.__name__ for kind in (NotConnected, NodeSilent, NodeUnreachable))}


@contextmanager
def hammering(bus: NatsBus, subject: str) -> Iterator[list[str]]:
    """Ask from a hundred threads while the block runs; afterwards no thread is left."""
    outcomes: list[str] = []
    enough = threading.Event()

    def run() -> None:
        while not enough.is_set():
            outcomes.append(_ask(bus, subject, within=SWALLOWED))

    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(run) for _ in range(THREADS)]
        try:
            yield outcomes
        finally:
            enough.set()
    for each in runs:
        each.result()


def ask_once_each(bus: NatsBus, subject: str) -> list[str]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda _: _ask(bus, subject, within=ANYWAY), range(THREADS)))


def _ask(bus: NatsBus, subject: str, *, within: timedelta) -> str:
    me = str(os.getpid()).encode()
    try:
        answer = bus.request(subject, me, timeout=within)
    except BusError as error:
        return type(error).__name__
    return ANSWERED if answer == me else "somebody else's answer"
