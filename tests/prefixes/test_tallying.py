from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from pytest_django import DjangoAssertNumQueries

from scheduling import snapshot
from scheduling.models import RouteTally
from scheduling.prefixes.selecting import Load, Wish
from scheduling.services import tallying
from scheduling.services.tallying import Counts, Tallies
from tests.factories import NOW, make_rule
from tests.prefixes.naive import seat

pytestmark = pytest.mark.django_db(transaction=True)
A, B = seat("a"), seat("b")
WISH = Wish(hot=A.id)


def ago(**parts: int) -> datetime:
    return NOW - timedelta(**parts)


def tally(model: str = "llama", at: datetime = NOW, **counts: Any) -> RouteTally:
    values = {"picks": sum(counts.get(name, 0) for name in ("hits", "misses", "pressure"))}
    return RouteTally.objects.create(model_name=model, minute=at, **{**values, **counts})


def test_each_pick_is_a_hit_a_miss_or_pressure() -> None:
    def told(wish: Wish | None, load: Load, *, to_hot: bool = False) -> Counts:
        return tallying.counted(wish, load, to_hot=to_hot, now=NOW)

    assert told(WISH, Load(chosen=2, least=1, hot=2), to_hot=True) == Counts(
        picks=1, hits=1, regret=1
    )
    assert told(WISH, Load(chosen=0, least=0, hot=4)) == Counts(picks=1, pressure=1, pressed_at=NOW)
    assert told(WISH, Load(chosen=1, least=0)) == Counts(picks=1, misses=1, regret=1)
    assert told(Wish(), Load(chosen=0, least=0)) == Counts(picks=1, misses=1)
    assert told(None, Load(chosen=0, least=0)) == Counts(picks=1, misses=1)


def test_a_shadow_tells_what_would_have_been_and_presses_nobody() -> None:
    hit = tallying.foreseen(WISH, Load(chosen=0, least=0, hot=1), to_hot=False)
    assert hit == Counts(picks=1, hits=1, regret=1)
    lucky = tallying.foreseen(WISH, Load(chosen=0, least=0, hot=0), to_hot=True)
    assert lucky == Counts(picks=1, hits=1, lucky=1)
    pressed = tallying.foreseen(WISH, Load(chosen=0, least=0, hot=9), to_hot=False)
    assert pressed == Counts(picks=1, pressure=1)
    assert tallying.foreseen(Wish(), Load(0, 0), to_hot=False) == Counts(picks=1, misses=1)


def test_what_many_threads_and_processes_count_adds_up_in_one_statement_each(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    processes = [Tallies(), Tallies()]

    def work(number: int) -> None:
        for turn in range(100):
            counts = Counts(picks=1, hits=1, regret=2)
            model, shadow = f"m{turn % 3}", turn % 2 == 0
            processes[number % 2].add(model, counts, shadow=shadow, now=NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for one in processes:
        with django_assert_num_queries(1):
            one.flush()
    for one in processes:
        with django_assert_num_queries(0):
            one.flush()
    with django_assert_num_queries(1):
        found = tallying.totals(since=NOW - timedelta(hours=1))
    assert sum(counts.picks for counts in found.values()) == 800
    assert len(found) == 6
    assert {counts.hit_rate for counts in found.values()} == {1.0}
    assert {counts.mean_regret for counts in found.values()} == {2.0}
    assert tallying.totals(since=ago(hours=1), models=["m0"]).keys() == {
        ("m0", False),
        ("m0", True),
    }


def test_what_cannot_be_written_is_kept() -> None:
    def away(*_: Any) -> None:
        raise OperationalError("the database is away")

    tallies = Tallies()
    tallies.add("llama", Counts(picks=1, hits=1), shadow=False, now=NOW)
    with connection.execute_wrapper(away), pytest.raises(OperationalError):
        tallies.flush()
    tallies.add("llama", Counts(picks=1, misses=1), shadow=False, now=NOW)
    tallies.flush()
    written = RouteTally.objects.get()
    assert (written.picks, written.hits, written.misses) == (2, 1, 1)


def test_enough_pressure_within_the_window_is_told(settings: Any) -> None:
    for name in ("edge", "late", "twice", "shadowed", "calm"):
        make_rule(name)
    tally("edge", ago(seconds=90), pressure=1, pressed_at=ago(minutes=1))
    tally("late", ago(seconds=90), pressure=1, pressed_at=ago(seconds=61))
    tally("twice", pressure=2, pressed_at=NOW)
    tally("shadowed", pressure=9, pressed_at=NOW, shadow=True)
    tally("calm", hits=9)
    assert snapshot.take(now=NOW).pressed == {"edge", "twice"}
    settings.CLUSTER = replace(settings.CLUSTER, prefix_pressure_threshold=2)
    assert snapshot.take(now=NOW).pressed == {"twice"}


def test_a_day_is_kept() -> None:
    tally(at=ago(hours=24))
    tally(at=ago(hours=24, seconds=1))
    assert tallying.forget_old(now=NOW) == 1
    assert RouteTally.objects.get().minute == ago(hours=24)
