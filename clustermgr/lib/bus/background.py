"""An event loop on a daemon thread that any other thread may give work to."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from clustermgr.lib.errors import Interrupted

T = TypeVar("T")

GRACE = 3.0  # seconds close() waits for the goodbye; the thread is a daemon and may be left


class Background:
    """Runs `main` for ever, and what the threads bring beside it."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._closing = asyncio.Event()
        self._waiting: set[Future[Any]] = set()
        self._brought: deque[tuple[Coroutine[Any, Any, Any], Future[Any]]] = deque()
        self._called = False  # the loop knows that something was brought
        self._interrupted = False

    def start(self) -> None:
        """Start the thread unless it runs already or the process is on its way out."""
        if self._thread or self._interrupted:
            return
        with self._starting:
            if self._thread is None:
                ready = threading.Event()
                thread = threading.Thread(target=self._run, args=[ready], name="bus", daemon=True)
                thread.start()
                ready.wait()
                self._thread = thread

    @contextmanager
    def doing(self, work: Coroutine[Any, Any, T]) -> Iterator[Future[T]]:
        """Run `work` on the loop; leaving the block in any way cancels what is left of it."""
        future = self._submit(work)
        self._waiting.add(future)
        if self._interrupted:  # set while we were on our way: nobody saw us in `_waiting`
            future.cancel()
        try:
            yield future
        finally:
            future.cancel()
            self._waiting.discard(future)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        self.start()
        if not self._interrupted:
            future: Future[T] = Future()
            with suppress(RuntimeError):  # the loop was closed this very moment
                self._bring(work, future)
                return future
        work.close()
        raise _interrupted()

    def _bring(self, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
        # asyncio.run_coroutine_threadsafe() wakes the loop by a system call each time. Here one
        # call serves all who come before the loop has looked: brought first, then asked
        # whether the call is still due, in the opposite order to `_take`, so nobody is missed.
        self._brought.append((work, future))
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._called = False
        while self._brought:
            work, future = self._brought.popleft()
            if future.cancelled():
                work.close()
                continue
            task = self._loop.create_task(work)
            task.add_done_callback(partial(_settle, future))
            future.add_done_callback(partial(self._give_up, task))

    def _give_up(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        if future.cancelled():
            with suppress(RuntimeError):  # the loop is closed, and the task with it
                self._loop.call_soon_threadsafe(task.cancel)

    def outcome(self, future: Future[T]) -> T:
        """Wait for the result of `doing`; a cancelled one was interrupted."""
        try:
            return future.result()
        except CancelledError:
            raise _interrupted() from None

    def interrupt(self) -> None:
        """Cancel all work but `main`, and refuse more; lock-free, so signal handlers may."""
        self._interrupted = True
        for future in self._waiting.copy():
            future.cancel()  # wakes its thread from here, even if the loop were stuck

    def close(self) -> None:
        """Interrupt, end `main`, end the thread."""
        self.interrupt()
        if self._thread and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop closed first: a second close() at once
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(GRACE)

    def _run(self, ready: threading.Event) -> None:
        # asyncio's own loop, whatever policy the web server set: this one we have tested.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            self._loop = runner.get_loop()
            ready.set()
            runner.run(self._main_until_closed())
        while self._brought:  # came too late to be taken
            work, future = self._brought.popleft()
            work.close()
            future.cancel()

    async def _main_until_closed(self) -> None:
        main = asyncio.create_task(self._main())
        await self._closing.wait()
        # Again and again: Python 3.11's wait_for(), which nats-py dials with, loses a
        # cancellation that comes together with the result.
        while not main.done():
            main.cancel()
            await asyncio.wait([main], timeout=0.05)


def _settle(future: Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        future.cancel()
        return
    error = task.exception()  # asked in any case: asyncio complains about one nobody looked at
    if not future.set_running_or_notify_cancel():
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _interrupted() -> Interrupted:
    return Interrupted("This process is shutting down and stopped waiting; ask again later.")
