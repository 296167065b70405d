"""Long disk work in a thread that ends when the task is cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Check = Callable[[], None]  # called between two pieces of work


class Interrupted(Exception):
    """Raised inside the thread; nobody outside sees it."""


async def interruptible(work: Callable[[Check], T]) -> T:
    """Run `work` in a thread; a cancelled caller waits until the thread has let go of its files."""
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Interrupted

    running = asyncio.ensure_future(asyncio.to_thread(work, check))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        running.exception()  # seen: it was interrupted, or failed on its own too late to matter
        raise
