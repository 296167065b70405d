"""Ask a node and wait, or tell it and go on: the only door to NATS."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Protocol

from django.conf import settings
from django.db import connection

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import dialling
from clustermgr.lib.bus.background import Background
from clustermgr.lib.bus.exchange import Exchange, OnEvent
from clustermgr.lib.bus.uplink import BusStatus
from clustermgr.lib.errors import BusError

__all__ = ["Bus", "BusStatus", "NatsBus", "Quiet", "default_bus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What to do each time that nothing was heard for `after`; what it raises ends the wait."""

    after: timedelta
    do: Callable[[], None]


class Bus(Protocol):
    """What a gateway needs to talk to nodes."""

    def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: timedelta,
        events: str | None = None,
        on_event: OnEvent | None = None,
        quiet: Quiet | None = None,
    ) -> bytes:
        """Ask and wait; what arrives on `events` meanwhile goes to `on_event`."""
        ...

    def request_each(
        self, subjects: Sequence[str], payload: bytes, *, timeout: timedelta
    ) -> list[bytes | BusError]:
        """Ask many the same; their answers in the order of `subjects`, or why there is none."""
        ...

    def publish(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens; return once the server has it."""
        ...


class NatsBus:
    """One NATS connection per process, shared by all its threads, made on the first call."""

    def __init__(self, cluster: ClusterSettings) -> None:
        dialling.check(cluster)
        self._cluster = cluster
        self._by_pid: dict[int, _Process] = {}

    def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: timedelta,
        events: str | None = None,
        on_event: OnEvent | None = None,
        quiet: Quiet | None = None,
    ) -> bytes:
        """Ask and wait for the answer; events are handed over in order, on this thread.

        NotConnected: never sent. NodeUnreachable: nobody listens. NodeSilent: no answer in
        time. Interrupted: we stopped waiting. What `on_event` raises ends the wait.
        """
        _refuse_in_transaction()
        inbox: SimpleQueue[bytes | None] = SimpleQueue()
        here = self._here()
        work = here.exchange.ask(subject, payload, timeout=timeout, events=events, hear=inbox.put)
        with here.background.doing(work) as answer:
            answer.add_done_callback(lambda _: inbox.put(None))
            for event in _heard(inbox, quiet):
                if on_event:
                    on_event(event)
            return here.background.outcome(answer)

    def request_each(
        self, subjects: Sequence[str], payload: bytes, *, timeout: timedelta
    ) -> list[bytes | BusError]:
        """Ask many the same, all at once from this one thread; Interrupted ends it for all.

        A thread for each question costs more than the question: they fight for the interpreter.
        """
        _refuse_in_transaction()
        here = self._here()
        work = here.exchange.ask_each(subjects, payload, timeout=timeout)
        with here.background.doing(work) as answers:
            return here.background.outcome(answers)

    def publish(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens; NotConnected when the server did not confirm that it has it."""
        _refuse_in_transaction()
        here = self._here()
        with here.background.doing(here.exchange.tell(subject, payload)) as sent:
            here.background.outcome(sent)

    def publish_each(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Tell many things and have the server confirm once that it has them all."""
        _refuse_in_transaction()
        here = self._here()
        with here.background.doing(here.exchange.tell_each(messages)) as sent:
            here.background.outcome(sent)

    @contextmanager
    def listening(self, subject: str, hear: OnEvent) -> Iterator[None]:
        """Hear `subject` while the block runs, from whenever there is a connection.

        `hear` is called on the bus's own thread: it must neither wait nor raise.
        """
        here = self._here()
        with here.background.doing(here.exchange.listen(subject, hear)):
            yield

    def status(self) -> BusStatus:
        """Whether this process is connected, since when, and why not; dials, never waits."""
        here = self._here()
        here.background.start()
        return here.exchange.uplink.status

    def stop_waiting(self) -> None:
        """Free every thread of this process that waits in a call, and refuse new calls.

        For the shutdown: a thread that waits for a node cannot be killed. Takes no lock, so a
        signal handler may call it.
        """
        self._here().background.interrupt()

    def close(self) -> None:
        """Stop waiting and hang up, for good in this process."""
        self._here().background.close()

    def _here(self) -> "_Process":
        # No lock: one that another thread held during a fork would stay shut in the child. And
        # the child keeps its parent's entry untouched: both share one epoll instance, so even
        # collecting that loop would unregister the parent's socket.
        pid = os.getpid()
        return self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Process(self._cluster))


def _heard(inbox: "SimpleQueue[bytes | None]", quiet: Quiet | None) -> Iterator[bytes]:
    """What arrives, until the answer has; a silence that lasts is somebody's to look into."""
    patience = quiet.after.total_seconds() if quiet else None
    while True:
        try:
            event = inbox.get(timeout=patience)
        except Empty:
            if quiet:
                quiet.do()
            continue
        if event is None:
            return
        yield event


class _Process:
    """What one process has of its own; nothing runs before the first call."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self.exchange = Exchange(cluster)
        self.background = Background(self.exchange.uplink.keep)


_DEFAULT: dict[str, NatsBus] = {}


def default_bus() -> NatsBus:
    """The bus of this installation, as `settings.CLUSTER` describes it."""
    # setdefault, not a lock: see NatsBus._here. A bus that loses the race never dialled.
    return _DEFAULT.get("bus") or _DEFAULT.setdefault("bus", NatsBus(settings.CLUSTER))


def _refuse_in_transaction() -> None:
    if connection.in_atomic_block:
        raise RuntimeError("No network in a transaction: commit first, then ask, then write.")
