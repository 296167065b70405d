"""Database work from a coroutine."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from django.db import connection

Given = TypeVar("Given")
Result = TypeVar("Result")


async def in_thread(work: Callable[[Given], Result], argument: Given) -> Result:
    """Run in a worker thread and give its connection back to the pool."""

    def run() -> Result:
        try:
            return work(argument)
        finally:
            connection.close()

    return await asyncio.to_thread(run)
