"""Database work for code that runs on an event loop, in two lanes.

Statements that are over in milliseconds share the loop's own threads: picks, heartbeats, tokens.
What may wait for a lock or plans for the whole cluster has a lane of its own, so that nobody in
a hurry ever stands behind it.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection

Args = ParamSpec("Args")
Result = TypeVar("Result")

_slow = ThreadPoolExecutor(1, thread_name_prefix="slow")  # plans wait for each other in any case


async def off_loop(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """Run what is short in a thread and give its connection back to the pool."""
    return await _in_thread(None, partial(work, *args, **kwargs))


async def aside(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """The same for what may take long: one at a time, and only its like waits for it."""
    return await _in_thread(_slow, partial(work, *args, **kwargs))


async def _in_thread(lane: Executor | None, work: Callable[[], Result]) -> Result:
    def given_back() -> Result:
        try:
            return work()
        finally:
            connection.close()

    # Names for the log and the like go along, as `to_thread` would take them
    within = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(lane, within.run, given_back)
