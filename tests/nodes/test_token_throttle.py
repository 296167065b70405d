from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from clustermgr.lib.errors import TooManyAttempts, Unauthenticated
from nodes.models import ClusterEvent, FailedAttempt
from nodes.services import jointokens, refusals
from tests.factories import NOW

MINUTE = timedelta(minutes=1)


def fail(source: str, *, times: int = 1, now: datetime = NOW) -> Counter[type]:
    answers: Counter[type] = Counter()
    for _ in range(times):
        with pytest.raises((Unauthenticated, TooManyAttempts)) as refusal:
            jointokens.authenticate("wrong", source=source, now=now)
        answers[refusal.type] += 1
    return answers


@pytest.mark.django_db
def test_a_source_that_keeps_failing_is_told_to_wait() -> None:
    assert fail("10.0.0.1", times=25) == {Unauthenticated: 20, TooManyAttempts: 5}
    assert fail("10.0.0.2") == {Unauthenticated: 1}
    assert fail("10.0.0.1", now=NOW + MINUTE) == {Unauthenticated: 1}


@pytest.mark.django_db
def test_one_wrong_worker_does_not_lock_out_the_fleet_behind_its_address() -> None:
    token, secret = jointokens.issue("fleet", by="ada", now=NOW)
    fail("10.0.0.1", times=30)
    assert jointokens.authenticate(secret, source="10.0.0.1", now=NOW) == token


@pytest.mark.django_db
def test_a_flood_is_one_event_for_each_source_until_somebody_has_seen_it() -> None:
    fail("10.0.0.1", times=30)
    fail("10.0.0.2", times=30)
    fail("10.0.0.1", times=30, now=NOW + MINUTE)
    told = ClusterEvent.objects.filter(kind="join.refused")
    assert told.count() == 2
    told.update(acknowledged_at=NOW, acknowledged_by="ada")
    fail("10.0.0.1", times=30, now=NOW + 2 * MINUTE)
    assert told.count() == 3


@pytest.mark.django_db
def test_counting_is_one_statement(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(1):
        assert refusals.count("somebody", now=NOW) == 1
    with django_assert_num_queries(1):
        assert refusals.count("somebody", now=NOW) == 2


@pytest.mark.django_db
def test_a_source_longer_than_its_column_is_still_counted() -> None:
    assert refusals.count("x" * 5000, now=NOW) == 1


@pytest.mark.django_db
def test_old_counters_are_forgotten() -> None:
    refusals.count("old", now=NOW)
    refusals.count("young", now=NOW + timedelta(minutes=59))
    assert refusals.forget_old(now=NOW + timedelta(minutes=61)) == 1
    assert FailedAttempt.objects.get().source == "young"


@pytest.mark.django_db(transaction=True)
def test_no_failure_is_lost_when_many_fail_at_once() -> None:
    def once(_: int) -> int:
        try:
            return refusals.count("10.0.0.1", now=NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as threads:
        assert sorted(threads.map(once, range(40))) == list(range(1, 41))
