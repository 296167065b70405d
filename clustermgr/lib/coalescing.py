"""Many callers of one thing at once: whoever is first does it for all who wait meanwhile.

Under no load a call costs what it would cost alone. Under load, calls become few and large,
and what is done for the tenth caller is nearly free. Only calls of one key are put together;
those of different keys go side by side.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Place(Generic[Item, Answer]):
    """One caller in the line. A bare lock is the cheapest thing a thread can wait on."""

    __slots__ = ("_wake", "answer", "failure", "item", "leads")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.answer: Answer | None = None
        self.failure: BaseException | None = None
        self.leads = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def wait(self) -> None:
        self._wake.acquire()

    def wake(self) -> None:
        self._wake.release()


class Together(Generic[Item, Answer]):
    """For threads: `work` gets what came together, and answers in its order."""

    def __init__(
        self, work: Callable[[Sequence[Item]], Sequence[Answer]], *, at_most: int = 64
    ) -> None:
        self._work = work
        self._at_most = at_most
        self._lock = threading.Lock()
        self._lines: dict[Hashable, deque[_Place[Item, Answer]]] = {}

    def do(self, key: Hashable, item: Item) -> Answer:
        """The answer to `item`; raises what `work` raised for those it was done with."""
        place: _Place[Item, Answer] = _Place(item)
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = deque()
                place.leads = True
            line.append(place)
        if not place.leads:
            place.wait()
        if place.leads:
            self._lead(key, line)
        if place.failure is not None:
            raise place.failure
        return place.answer  # type: ignore[return-value]  # whoever did not fail was answered

    def _lead(self, key: Hashable, line: deque[_Place[Item, Answer]]) -> None:
        """One turn, one's own item among them; then the next in the line leads.

        It is woken last: those who were served may be back in the line before it looks.
        """
        with self._lock:
            turn = [line.popleft() for _ in range(min(len(line), self._at_most))]
        self._serve(turn)
        for place in turn:
            if not place.leads:
                place.wake()
        with self._lock:
            if line:
                line[0].leads = True
                line[0].wake()
            else:
                del self._lines[key]

    def _serve(self, turn: Sequence[_Place[Item, Answer]]) -> None:
        try:
            answers = self._work([place.item for place in turn])
            for place, answer in zip(turn, answers, strict=True):
                place.answer = answer
        except BaseException as failure:
            for place in turn:
                place.failure = failure


class TogetherAsync(Generic[Item, Answer]):
    """The same for an event loop, where `work` is awaited. One loop only.

    `unclaimed` gets the answer of a caller that was cancelled before it came.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        at_most: int = 256,
        unclaimed: Callable[[Answer], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._at_most = at_most
        self._unclaimed = unclaimed
        self._waiting: dict[Hashable, deque[tuple[Item, asyncio.Future[Answer]]]] = {}
        self._leading: set[asyncio.Task[None]] = set()

    async def do(self, key: Hashable, item: Item) -> Answer:
        answer = self.put(key, item)
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may have come between the last step of the caller and its cancellation
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._unclaimed(answer.result())
            raise

    def put(self, key: Hashable, item: Item) -> asyncio.Future[Answer]:
        """Stand in the line without waiting."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        line = self._waiting.get(key)
        if line is None:
            line = self._waiting[key] = deque()
            # A task of its own: a caller that hangs up must not take the others' answers along
            task = asyncio.create_task(self._lead(key, line))
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)
        line.append((item, answer))
        return answer

    async def _lead(self, key: Hashable, line: deque[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            while line:
                turn = [line.popleft() for _ in range(min(len(line), self._at_most))]
                await self._serve(turn)
        finally:
            del self._waiting[key]

    async def _serve(self, turn: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._work([item for item, _ in turn])
            told = list(zip(turn, answers, strict=True))
        except BaseException as failure:
            for _, answer in turn:
                if not answer.done():
                    answer.set_exception(failure)
            if not isinstance(failure, Exception):
                raise
            return
        for (_, answer), mine in told:
            if answer.done():
                self._unclaimed(mine)
            else:
                answer.set_result(mine)
