"""Database work for code that runs on an event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import connection

Args = ParamSpec("Args")
Result = TypeVar("Result")


async def off_loop(work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """Run in a worker thread and give its connection back to the pool."""

    def in_thread() -> Result:
        try:
            return work(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.to_thread(in_thread)
