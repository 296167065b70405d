from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.progress import RANKS, Forward
from nodes.wire import PHASES, InstallProgress

Timed = tuple[float, InstallProgress]


def tick(percentage: float, *, phase: str = "", seq: int = 0, current: str = "") -> InstallProgress:
    return InstallProgress(
        op_id="op-9",
        node_id="n",
        backend="llama-cpp",
        percentage=percentage,
        phase=phase,
        seq=seq,
        current=current,
    )


def shown(ticks: Sequence[Timed], *, per_second: float = 4) -> list[Timed]:
    """What came through, and when; what was held back at the end came at infinity."""
    forward = Forward(per_second=per_second)
    through = [(at, forward.offer(progress, at=at)) for at, progress in ticks]
    return [(at, told) for at, told in [*through, (float("inf"), forward.rest())] if told]


def slowly(*ticks: InstallProgress) -> list[InstallProgress]:
    return [told for _, told in shown([(float(at), one) for at, one in enumerate(ticks)])]


def test_without_numbers_a_bar_never_goes_back() -> None:
    assert slowly(tick(10), tick(30), tick(20), tick(40)) == [tick(10), tick(30), tick(40)]


def test_a_later_phase_may_start_at_nothing_and_an_earlier_one_is_late() -> None:
    ticks = [
        tick(90, phase="downloading"),
        tick(0, phase="extracting"),
        tick(99, phase="downloading"),
        tick(5, phase="polishing"),
        tick(0, phase="starting"),
    ]
    assert slowly(*ticks) == [ticks[0], ticks[1], ticks[3], ticks[4]]


def test_with_an_unknown_total_the_amount_moves_on() -> None:
    ticks = [tick(0, current="1.0 MiB"), tick(0, current="2.0 MiB")]
    assert slowly(*ticks) == ticks


def test_with_numbers_only_the_number_decides() -> None:
    ticks = [tick(50, seq=1), tick(80, seq=3), tick(60, seq=2), tick(80, seq=3), tick(10, seq=4)]
    assert slowly(*ticks) == [ticks[0], ticks[1], ticks[4]]


def test_a_burst_is_thinned_out_to_its_newest() -> None:
    ticks = [(0.01 * step, tick(step)) for step in range(60)]
    assert [(at, told.percentage) for at, told in shown(ticks)] == [
        (0.0, 0),
        (0.25, 25),
        (0.5, 50),
        (float("inf"), 59),
    ]


def test_completion_does_not_wait_for_its_turn() -> None:
    assert shown([(0.0, tick(99)), (0.01, tick(100)), (0.02, tick(100))]) == [
        (0.0, tick(99)),
        (0.01, tick(100)),
        (float("inf"), tick(100)),
    ]


def test_nothing_is_left_when_nothing_was_held_back() -> None:
    forward = Forward(per_second=4)
    assert forward.rest() is None
    assert forward.offer(tick(1), at=0.0) == tick(1)
    assert forward.rest() is None


STEPS = st.builds(
    tick,
    st.sampled_from([0.0, 1.0, 50.0, 99.0, 100.0]),
    phase=st.sampled_from(["", *PHASES, "polishing"]),
)
GAPS = st.floats(0, 0.5)


def timed(gaps: Sequence[float], ticks: Sequence[InstallProgress]) -> list[Timed]:
    moments = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    return list(zip(moments, ticks, strict=False))


@given(st.lists(GAPS, max_size=30), st.lists(STEPS, max_size=30), st.sampled_from([1, 4, 10]))
def test_never_too_often_and_never_without_the_newest(
    gaps: list[float], ticks: list[InstallProgress], per_second: int
) -> None:
    through = shown(timed(gaps, ticks), per_second=per_second)
    paced = [at for at, told in through[:-1] if told.percentage < 100]
    assert all(b - a >= 1 / per_second - 1e-9 for a, b in pairwise(paced))
    everything = [told for _, told in shown(timed(gaps, ticks), per_second=1e9)]
    assert [told for _, told in through][-1:] == everything[-1:]


@given(st.lists(STEPS.filter(lambda step: step.phase in RANKS), max_size=30))
def test_what_is_shown_never_moves_back(ticks: list[InstallProgress]) -> None:
    positions = [(RANKS[told.phase], told.percentage) for told in slowly(*ticks)]
    assert positions == sorted(positions)


@given(st.permutations(range(1, 20)))
def test_numbered_ticks_come_through_in_rising_order_whatever_the_network_does(
    numbers: list[int],
) -> None:
    through = [told.seq for told in slowly(*(tick(50, seq=number) for number in numbers))]
    assert through == sorted(set(through))
    assert through[-1] == 19


@pytest.mark.parametrize("per_second", [1, 4])
def test_ticks_exactly_a_pause_apart_all_come_through(per_second: int) -> None:
    ticks = [(step / per_second, tick(step)) for step in range(10)]
    assert shown(ticks, per_second=per_second) == ticks
