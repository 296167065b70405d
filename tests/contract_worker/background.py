"""An event loop in a thread: what answers must go on answering while a test waits."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class Background:
    """Use it as a context manager; `run` waits for a coroutine on its loop."""

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result], *, within: float = 60.0) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(within)
