"""What backends printed: asked of the worker that keeps it, in sentences when it cannot be had."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from clustermgr.lib.errors import Busy, Conflict, NotFound, WorkerUnreachable
from nodes import workerhttp
from nodes.models import BackendNode
from nodes.services import bearers
from nodes.wire import logs as wire
from nodes.wire.logs import LogLine
from nodes.workerhttp import WorkerDoor

# Each holds a seat of the web process for up to 15 s; the other seats are for everybody else
AT_ONCE = 6
_seats = threading.BoundedSemaphore(AT_ONCE)

Read = TypeVar("Read")


def models(node: BackendNode, *, now: datetime) -> list[str]:
    """The models whose processes printed something on this node."""
    return _ask(node, wire.INDEX, wire.read_index, now)


def lines(node: BackendNode, key: str, *, now: datetime) -> list[LogLine]:
    """What one process `model#replica` printed, or all replicas of a model by time."""
    return _ask(node, wire.log_path(key), wire.read_lines, now)


def door(node: BackendNode) -> WorkerDoor:
    """How to reach the node's HTTP server, or why that is not done."""
    if node.retired_at is not None:
        raise Conflict(f"{node.name} is retired: nothing is asked of it any more.")
    if node.approved_at is None:
        raise Conflict(f"{node.name} waits for approval: until then nothing is asked of it.")
    if not node.http_address:
        raise NotFound(f"{node.name} has no HTTP server, hence no logs to show.")
    return WorkerDoor(address=node.http_address, secret=bearers.of(node))


def in_context(error: WorkerUnreachable, node: BackendNode, *, now: datetime) -> WorkerUnreachable:
    """The same refusal, with what tells a cut cable from a dead machine."""
    seconds = max(int((now - node.last_heartbeat).total_seconds()), 0)
    return WorkerUnreachable(f"{error} The last heartbeat of {node.name} was {seconds} s ago.")


def _ask(node: BackendNode, path: str, read: Callable[[bytes], Read], now: datetime) -> Read:
    way = door(node)
    with _seat():
        try:
            return read(asyncio.run(workerhttp.get(way, path)))
        except WorkerUnreachable as error:
            raise in_context(error, node, now=now) from error


@contextmanager
def _seat() -> Iterator[None]:
    if not _seats.acquire(blocking=False):
        raise Busy("Too many logs are being read at this moment; try again.")
    try:
        yield
    finally:
        _seats.release()
