import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from nodes.models import NodeModel
from nodes.services import beating, replicas
from nodes.services.beating import Beat
from nodes.wire import HeartbeatReport
from scheduling.definitions import Definition
from scheduling.models import RouteLease
from scheduling.routing.asks import Ask, Lease
from scheduling.services import defining, leasing, prefixing
from scheduling.services.leasing import Terms, Wanted
from scheduling.services.routing import Router
from tests.factories import make_node, make_replica

pytestmark = pytest.mark.django_db(transaction=True)

THREADS, LEASES = 64, 20_000
SHORT = timedelta(seconds=1)
LONG = timedelta(minutes=5)


def clock() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def router() -> Router:
    return Router(clock=clock, prefixes=prefixing.default())


def ask(ttl: timedelta = LONG) -> Ask:
    return Ask(model="llama", holder="storm", ttl=ttl)


def threads(count: int, work: Callable[[int], None]) -> None:
    """All at once; the first failure is raised."""

    def closing(number: int) -> None:
        try:
            work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(closing, number) for number in range(count)]:
            done.result()


@pytest.fixture
def watched() -> Iterator[list[tuple[int, int]]]:
    """Counts and leases of every replica, both of one moment, for as long as the test runs."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def watch() -> None:
        statement = """
            SELECT r.in_flight, (SELECT count(*) FROM scheduling_routelease l
                                 WHERE l.replica_id = r.id)
            FROM nodes_nodemodel r
        """
        with connection.cursor() as cursor:
            while not over.wait(0.02):
                cursor.execute(statement)
                seen.extend(cursor.fetchall())
        connection.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield seen
    over.set()
    watcher.join()


def test_no_count_leaks_however_callers_end(router: Router, watched: list[tuple[int, int]]) -> None:
    for name in "abcde":
        make_replica(make_node(name))

    def caller(number: int) -> None:
        dice = random.Random(number)
        for _ in range(LEASES // THREADS):
            dies = dice.random() < 0.05
            lease = router.acquire(ask(SHORT if dies else LONG))
            assert lease is not None
            if not dies:
                assert router.release(lease.id)
            if dice.random() < 0.05:
                router.release(lease.id)  # once too often
            connection.close()  # as at the end of a request: the pool has fewer than we are

    threads(THREADS, caller)
    leasing.sweep(now=clock() + SHORT)
    assert not RouteLease.objects.exists()
    assert set(NodeModel.objects.values_list("in_flight", flat=True)) == {0}
    assert len(watched) > 50
    assert all(counted == held for counted, held in watched)


def test_a_burst_is_spread_evenly_by_many_processes_worth_of_callers() -> None:
    """A router and a connection of its own, not the fast lane's: so the database sees processes."""
    for name in "abc":
        make_replica(make_node(name))

    def caller(_: int) -> None:
        mine = Router(clock=clock, prefixes=prefixing.default())
        for _ in range(10):
            with transaction.atomic():
                assert mine.acquire(ask())
            connection.close()

    threads(30, caller)
    counts = list(NodeModel.objects.values_list("in_flight", flat=True))
    assert sum(counts) == 300
    assert max(counts) - min(counts) <= 2


def test_many_connections_that_pick_one_by_one_neither_deadlock_nor_pile_up() -> None:
    for name in "abcd":
        make_replica(make_node(name))
    deepest: list[int] = []

    def caller(number: int) -> None:
        with connection.cursor() as cursor:  # not the fast lane: each its own connection
            for _ in range(25):
                wanted = Wanted(ask=ask())
                with transaction.atomic():
                    (lease,) = leasing.take([wanted], Terms(), now=clock())
                assert lease is not None
                deepest.append(lease.load - lease.least)
                with transaction.atomic():
                    assert leasing.release([lease.id])
            cursor.execute("SELECT 1")

    threads(16, caller)
    assert set(NodeModel.objects.values_list("in_flight", flat=True)) == {0}
    assert len(deepest) == 400
    assert max(deepest) <= 3  # what was counted is a moment old; if they piled up it were 15


def test_after_an_edit_nobody_gets_the_old_revision(router: Router) -> None:
    old = Definition.of({"name": "llama", "backend": "reference", "options": {"Threads": 1}})
    model = defining.create(old, by="tests", now=clock())
    for name in "abc":
        make_replica(make_node(name), config_revision=model.config_revision)
    edited = threading.Event()
    late: list[Lease | None] = []

    def caller(number: int) -> None:
        if number == 0:
            defining.edit("llama", old.changed({"options": {"Threads": 2}}), by="t", now=clock())
            edited.set()
        for _ in range(40):
            after = edited.is_set()
            lease = router.acquire(ask())
            if after:
                late.append(lease)

    threads(16, caller)
    assert len(late) > 50
    assert set(late) == {None}


def test_when_a_replica_is_removed_its_callers_get_another(router: Router) -> None:
    doomed, other = (make_replica(make_node(name)) for name in "ab")

    def caller(number: int) -> None:
        for turn in range(30):
            if (number, turn) == (0, 10):
                replicas.remove(NodeModel.objects.filter(pk=doomed.pk), reason="tests")
            lease = router.acquire(ask())
            assert lease is not None
            router.release(lease.id)

    threads(16, caller)
    assert [row.pk for row in NodeModel.objects.all()] == [other.pk]
    assert set(NodeModel.objects.values_list("in_flight", flat=True)) == {0}
    assert not RouteLease.objects.exists()


def test_picks_hold_no_lock_that_a_heartbeat_waits_for() -> None:
    node = make_node()
    make_replica(node)
    beat = Beat(node_id=node.pk, received_at=clock(), report=HeartbeatReport(available_vram=1))
    taken, beaten = threading.Event(), threading.Event()

    def caller(number: int) -> None:
        if number == 0:
            with transaction.atomic():  # a pick that hangs with all its locks
                assert leasing.take([Wanted(ask=ask()), Wanted(ask=ask())], Terms(), now=clock())
                taken.set()
                assert beaten.wait(60)
        else:
            assert taken.wait(60)
            beating.record([beat])
            beaten.set()

    threads(2, caller)
    assert beaten.is_set()


def test_a_lease_whose_grant_was_not_heard_is_granted_anew() -> None:
    make_replica(make_node())
    wanted = Wanted(ask=ask())
    (unheard,) = leasing.take([wanted], Terms(), now=clock())
    (lease,) = leasing.take([wanted], Terms(), now=clock())
    assert unheard is not None
    assert lease is not None
    assert lease.id != unheard.id
    assert NodeModel.objects.get().in_flight == 2
