"""Operations by their id: asked twice, done once; and given up if somebody asks in time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from worker.machine import Refused, Step, Tell
from worker.wire.replies import InstallReply, StoppingReply

KEEP = 15 * 60.0  # seconds; as long as a manager waits for the answer that it missed
KEEP_FAILURE = 20.0  # a refusal is forgotten sooner: the next try with this id may be meant
MOST = 512  # answers

CANCELLED = "cancelled"

Result = TypeVar("Result")
Key = tuple[str, str]  # verb, operation id: a manager may upgrade and then install under one id
Answer = InstallReply | StoppingReply


@dataclass(eq=False, slots=True)
class Operation:
    """One install or upgrade under way; it can be given up until its files are swapped in."""

    op_id: str
    tell: Tell
    cancelled: bool = False
    committed: bool = False
    _fetching: asyncio.Future[Any] | None = None

    async def fetched(self, fetch: Awaitable[Result]) -> Result:
        """Wait for the download, or refuse because it was cancelled."""
        task = asyncio.ensure_future(fetch)
        self._fetching = task
        try:
            self.check()
            return await task
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self._fetching = None
            task.cancel()

    def starts(self) -> None:
        """From here on there is no way back: what is started is finished."""
        self.check()
        self.committed = True
        self.tell(Step(phase="starting"))

    def cancel(self) -> bool:
        if self.committed or (self._fetching and self._fetching.done()):
            return False
        self.cancelled = True
        if self._fetching:
            self._fetching.cancel()
        return True

    def check(self) -> None:
        if self.cancelled:
            raise Refused(CANCELLED)


@dataclass(slots=True)
class Operations:
    """What is running, and what was answered lately; an operation without an id is neither."""

    clock: Callable[[], float] = time.monotonic
    _running: dict[Key, asyncio.Future[Answer]] = field(default_factory=dict)
    _open: dict[str, Operation] = field(default_factory=dict)
    _answered: dict[Key, tuple[float, Answer]] = field(default_factory=dict)

    async def once(self, verb: str, op_id: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do `work`, or join whoever does it, or repeat what it answered."""
        if not op_id:
            return await work()
        key = (verb, op_id)
        until, answer = self._answered.get(key, (0.0, None))
        if answer and until > self.clock():
            return answer
        if key not in self._running:
            self._running[key] = asyncio.ensure_future(self._remembering(key, work))
        # One who asks may be gone before the work is done; the others still wait for it
        return await asyncio.shield(self._running[key])

    async def _remembering(self, key: Key, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await work()
        finally:
            del self._running[key]
        now = self.clock()
        self._answered.pop(key, None)
        self._answered[key] = now + (KEEP if answer.success else KEEP_FAILURE), answer
        fresh = [(key, kept) for key, kept in self._answered.items() if kept[0] > now]
        self._answered = dict(fresh[-MOST:])
        return answer

    def began(self, operation: Operation) -> None:
        if operation.op_id:
            self._open[operation.op_id] = operation

    def ended(self, operation: Operation) -> None:
        if self._open.get(operation.op_id) is operation:
            del self._open[operation.op_id]

    def find(self, op_id: str) -> Operation | None:
        return self._open.get(op_id)

    async def settled(self) -> None:
        """Wait until nothing is running."""
        while self._running:
            await asyncio.wait(self._running.values())
