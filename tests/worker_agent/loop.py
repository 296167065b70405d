"""Coroutines as tests, each on an event loop of its own."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Params = ParamSpec("Params")


def in_loop(test: Callable[Params, Coroutine[Any, Any, None]]) -> Callable[Params, None]:
    @functools.wraps(test)
    def run(*args: Params.args, **kwargs: Params.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


async def until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait for a fact without standing in the way of whoever brings it about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
