from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backendops import backoff
from backendops.progress import Reading, aggregate, eta, silence
from backendops.states import OpState
from clustermgr.lib.sizes import parse_size
from tests.factories import NOW

READINGS = st.builds(
    Reading,
    state=st.sampled_from(list(OpState)),
    percentage=st.floats(0, 100),
    current_bytes=st.integers(0, 2**40),
    total_bytes=st.integers(0, 2**40),
    rate=st.floats(0, 1e9),
)


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("412.0 MiB", 412 * 2**20),
        ("17 B", 17),
        ("1.5 GiB", 3 * 2**29),
        ("", 0),
        ("-3.0 MiB", 0),
        ("many MiB", 0),
        ("1 parsec", 0),
        ("nan MiB", 0),
        ("1e400 GiB", 0),
    ],
)
def test_sizes_are_read_in_a_workers_words(words: str, size: int) -> None:
    assert parse_size(words) == size


@given(st.lists(READINGS), st.floats(0, 100))
def test_the_bar_is_between_its_floor_and_100(readings: list[Reading], floor: float) -> None:
    assert floor <= aggregate(readings, floor=floor).percentage <= 100.0001


def test_row_24_the_bar_is_weighted_by_bytes() -> None:
    big = Reading(state=OpState.RUNNING, percentage=10, total_bytes=900)
    small = Reading(state=OpState.RUNNING, percentage=90, total_bytes=100)
    assert aggregate([big, small]).percentage == pytest.approx(18)


def test_a_size_that_is_not_known_is_not_added_up() -> None:
    known = Reading(state=OpState.RUNNING, total_bytes=100)
    unknown = Reading(state=OpState.RUNNING)
    assert aggregate([known, unknown]).total_bytes == 0


def test_a_time_is_told_only_if_it_is_known_for_all_that_move() -> None:
    moving = Reading(state=OpState.RUNNING, current_bytes=50, total_bytes=100, rate=10)
    stalled = Reading(state=OpState.RUNNING, current_bytes=50, total_bytes=100, rate=0)
    assert eta(moving) == timedelta(seconds=5)
    assert aggregate([moving]).eta == timedelta(seconds=5)
    assert aggregate([moving, stalled]).eta is None
    assert aggregate([moving, Reading(state=OpState.QUEUED)]).eta is None


def test_row_42_the_pause_doubles_from_30_seconds_to_15_minutes() -> None:
    seconds = [backoff.ceiling(n).total_seconds() for n in range(1, 11)]
    assert seconds == [30, 60, 120, 240, 480, 900, 900, 900, 900, 900]


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_anywhere_below_its_ceiling(attempts: int, jitter: float) -> None:
    pause = backoff.delay(attempts, jitter=jitter)
    assert backoff.SHORTEST <= pause <= backoff.ceiling(attempts)


@pytest.mark.parametrize(
    ("words", "may_pass"),
    [
        ("no gallery has a backend 'nope'", False),
        ('no backend found with name "nope"', False),
        ("no gallery has a backend 'nope'; gallery g: timed out", True),
        ("disk full", True),
        ("", True),
    ],
)
def test_only_a_name_that_every_gallery_was_read_for_cannot_pass(
    words: str, may_pass: bool
) -> None:
    assert backoff.can_pass(words) is may_pass


def test_silence_is_told_after_ten_seconds_and_only_of_who_ever_spoke() -> None:
    heard = NOW - timedelta(seconds=9)
    assert silence(heard, now=NOW) is None
    assert silence(heard, now=NOW + timedelta(seconds=1)) == timedelta(seconds=10)
    assert silence(None, now=NOW) is None
