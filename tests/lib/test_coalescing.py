import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from clustermgr.lib.coalescing import Together, TogetherAsync


class Slow:
    """Work whose first turn ends when it is told to: by then others stand in line."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.turns.append(list(items))
        self.begun.set()
        assert self.go_on.wait(60)
        if -1 in items:
            raise ValueError("minus one")
        return [item * 10 for item in items]


def line_up(together: Together[int, int], work: Slow, items: Sequence[int]) -> list[object]:
    """One call that is under way, and `items` behind it; what each of them got."""
    with ThreadPoolExecutor(len(items) + 1) as pool:
        first = pool.submit(together.do, "key", 0)
        assert work.begun.wait(60)
        rest = [pool.submit(together.do, "key", item) for item in items]
        while len(together._lines["key"]) < len(items):
            pass
        work.go_on.set()
        return [call.exception() or call.result() for call in (first, *rest)]


def test_who_comes_alone_is_served_alone() -> None:
    work = Slow()
    work.go_on.set()
    assert Together(work).do("key", 7) == 70
    assert work.turns == [[7]]


def test_who_waits_meanwhile_is_served_together_and_gets_his_own_answer() -> None:
    work = Slow()
    assert line_up(Together(work), work, range(1, 9)) == [item * 10 for item in range(9)]
    assert sorted(work.turns[1]) == list(range(1, 9))
    assert len(work.turns) == 2


def test_a_turn_is_no_larger_than_allowed() -> None:
    work = Slow()
    line_up(Together(work, at_most=3), work, range(1, 9))
    assert [len(turn) for turn in work.turns] == [1, 3, 3, 2]


def test_a_failure_is_told_to_those_it_happened_to_and_the_next_go_on() -> None:
    work = Slow()
    together = Together(work)
    first, *rest = line_up(together, work, [-1, 2])
    assert first == 0
    assert all(isinstance(got, ValueError) for got in rest)
    assert together.do("key", 3) == 30


def test_one_key_does_not_wait_for_another() -> None:
    work = Slow()
    together: Together[int, int] = Together(lambda items: items if items == [5] else work(items))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(together.do, "slow", 1)
        assert work.begun.wait(60)
        assert together.do("quick", 5) == 5
        work.go_on.set()
        assert held.result() == 10


@pytest.mark.parametrize("callers", [1, 50])
def test_on_a_loop_callers_are_served_together_too(callers: int) -> None:
    turns: list[list[int]] = []

    async def work(items: Sequence[int]) -> list[int]:
        turns.append(list(items))
        await asyncio.sleep(0)
        return [item * 10 for item in items]

    async def everybody() -> list[int]:
        together = TogetherAsync(work)
        return await asyncio.gather(*(together.do("key", item) for item in range(callers)))

    assert asyncio.run(everybody()) == [item * 10 for item in range(callers)]
    assert len(turns) == 1


def test_a_caller_that_hangs_up_on_a_loop_takes_nobody_along() -> None:
    async def story() -> int:
        go_on = asyncio.Event()

        async def work(items: Sequence[int]) -> list[int]:
            await go_on.wait()
            return list(items)

        together = TogetherAsync(work)
        leaving = asyncio.create_task(together.do("key", 1))
        staying = asyncio.create_task(together.do("key", 2))
        await asyncio.sleep(0)
        leaving.cancel()
        go_on.set()
        return await staying

    assert asyncio.run(story()) == 2


@pytest.mark.parametrize("late", [False, True])
def test_what_a_caller_that_hung_up_would_have_got_is_told_to_somebody(late: bool) -> None:
    async def story() -> list[int]:
        go_on, given_back = asyncio.Event(), list[int]()

        async def work(items: Sequence[int]) -> list[int]:
            await go_on.wait()
            return [item * 10 for item in items]

        together = TogetherAsync(work, unclaimed=given_back.append)
        leaving = asyncio.create_task(together.do("key", 1))
        staying = asyncio.create_task(together.do("key", 2))
        await asyncio.sleep(0)
        if not late:
            leaving.cancel()
        go_on.set()
        if late:  # after the step that answers it, before the step in which it would hear
            asyncio.get_running_loop().call_soon(leaving.cancel)
        assert await staying == 20
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return given_back

    assert asyncio.run(story()) == [10]


def test_work_that_answers_too_little_on_a_loop_wedges_nobody() -> None:
    async def story() -> list[object]:
        async def work(items: Sequence[int]) -> list[int]:
            return [item for item in items if item > 0]

        together = TogetherAsync(work)
        short = await asyncio.gather(
            *(together.do("key", item) for item in (0, 1)), return_exceptions=True
        )
        return [*map(type, short), await together.do("key", 2)]

    assert asyncio.run(story()) == [ValueError, ValueError, 2]
