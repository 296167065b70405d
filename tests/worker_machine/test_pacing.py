from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from worker.backends.pacing import BURST, Bucket

RATE = 1000


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3000)), min_size=1, max_size=30))
def test_who_waits_as_told_never_exceeds_the_rate_by_more_than_a_burst(
    pieces: list[tuple[int, int]],
) -> None:
    bucket, now, sent = Bucket(RATE), timedelta(), 0
    for count, idle in pieces:
        now += bucket.take(count, now=now) + timedelta(milliseconds=idle)
        sent += count
        assert sent <= RATE * (now + BURST).total_seconds() + 1


def test_no_rate_means_no_waiting() -> None:
    assert Bucket().take(10**12, now=timedelta()) == timedelta()


def test_a_long_silence_saves_up_no_more_than_a_burst() -> None:
    bucket = Bucket(RATE)
    bucket.take(1, now=timedelta())
    assert bucket.take(RATE, now=timedelta(hours=1)) == timedelta(seconds=1) - BURST
