"""Hear of the end before the server begins to wait for it."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop(call: Callable[[], None]) -> Iterator[None]:
    """Run `call` on the loop when the process is told to stop, then what was there before.

    uvicorn waits for open answers before it tells the application that it shuts down: an
    endless one has to end by itself, or the process never does.
    """
    if current_thread() is not main_thread():  # only the main thread hears signals
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def heard(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(call)
        previous = before[signal.Signals(number)]
        if callable(previous):
            previous(number, frame)

    for number in SIGNALS:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
