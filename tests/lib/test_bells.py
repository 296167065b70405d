"""Bells on a real database; what they send is kept in `queued`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from clustermgr.lib import bells
from clustermgr.lib.locks import LockKey, try_lock
from clustermgr.models import Bell, Tick
from scheduling.tasks import reconcile
from tests.locks import waiting
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)

TICK = "scheduling.reconcile"
MESSAGE = (TICK,)
Queued = list[tuple[Any, ...]]


def elsewhere(act: Callable[[], object]) -> None:
    """What another process would do, on a connection of its own."""
    try:
        act()
    finally:
        connection.close()


def ring_often(times: int) -> None:
    for _ in range(times):
        with transaction.atomic():
            bells.ring(TICK)


def burst(each: int = 125) -> None:
    """Eight at once ring, each ring in a transaction of its own."""
    with ThreadPoolExecutor(8) as crowd:
        for one in [crowd.submit(elsewhere, lambda: ring_often(each)) for _ in range(8)]:
            one.result()


@contextmanager
def meanwhile(act: Callable[[], object], *, after: int) -> Iterator[None]:
    """Have it done after so many statements of this connection."""
    seen = 0

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen
        result = execute(sql, params, many, context)
        seen += 1
        if seen == after:
            act()
        return result

    with connection.execute_wrapper(watch):
        yield
    assert seen >= after


def test_a_thousand_rings_before_a_tick_begins_are_one_message(queued: Queued) -> None:
    burst()
    assert queued == [MESSAGE]
    reconcile.apply()
    assert queued == [MESSAGE]
    assert Tick.objects.get(name=TICK).runs == 1
    assert not Bell.objects.exists()


# 1: it has begun; 2 to 6: the lock and its look; 7: it is over, and written down
@pytest.mark.parametrize("after", range(1, 8))
def test_a_thousand_rings_while_a_tick_looks_are_one_more(queued: Queued, after: int) -> None:
    bells.ring(TICK)
    with meanwhile(burst, after=after):
        reconcile.apply()
    assert queued == [MESSAGE] * 2
    reconcile.apply()
    assert queued == [MESSAGE] * 2


def test_who_rings_while_a_bell_is_being_answered_waits_for_that_and_rings_anew(
    queued: Queued,
) -> None:
    bells.ring(TICK)
    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            Bell.objects.filter(name=TICK).delete()
            ringing = other.submit(elsewhere, lambda: ring_often(1))
            until(lambda: waiting() > 0)  # as long as it takes the other to come to the row
        ringing.result()
    assert queued == [MESSAGE] * 2


def test_a_purged_queue_silences_a_bell_until_its_tick_comes_by_itself(queued: Queued) -> None:
    bells.ring(TICK)
    queued.clear()
    bells.ring(TICK)
    assert queued == []
    reconcile.apply()  # by the clock
    bells.ring(TICK)
    assert queued == [MESSAGE]


def test_what_is_rolled_back_rings_nothing(queued: Queued) -> None:
    with transaction.atomic():
        bells.ring(TICK)
        transaction.set_rollback(True)
    assert queued == []
    assert not Bell.objects.exists()


def test_a_tick_that_finds_another_at_it_leaves_a_bell_for_the_next(queued: Queued) -> None:
    with transaction.atomic(), ThreadPoolExecutor(1) as other:
        assert try_lock(LockKey.RECONCILE)
        other.submit(elsewhere, reconcile.apply).result()
    assert queued == [MESSAGE]
    burst(10)
    assert queued == [MESSAGE]


def test_only_what_ticks_by_itself_can_be_rung() -> None:
    with pytest.raises(LookupError):
        bells.ring("scheduling.run_job")
