import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import pytest
from django.db import connection, transaction

from nodes.backendrpc import Health
from nodes.models import BackendNode, NodeModel
from nodes.services import replicas
from scheduling.definitions import Definition
from scheduling.services import defining, leasing, observing
from scheduling.services.leasing import Terms, Wanted
from tests.factories import NOW, make_node, make_replica
from tests.routing.test_leases import ask
from tests.services import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]

FIRST, SECOND = UUID(int=1), UUID(int=2)
OLD = Definition.of({"name": "llama", "backend": "reference", "options": {"Threads": 1}})


def edit() -> None:
    defining.edit("llama", OLD.changed({"options": {"Threads": 2}}), by="tests", now=NOW)


def resume() -> None:
    replicas.restore(BackendNode.objects.get(), now=NOW)


def confirm() -> None:
    observing.note({Health.ALIVE: [SECOND], Health.BUSY: [FIRST], Health.GONE: []}, now=NOW)


def miss() -> None:
    observing.note({Health.ALIVE: [], Health.BUSY: [], Health.GONE: [SECOND, FIRST]}, now=NOW)


@transaction.atomic  # not in the fast lane, which would try again and hide a deadlock
def release(leases: list[UUID]) -> None:
    leasing.release(leases)


def hold_the_first(held: threading.Event, free: threading.Event) -> None:
    with transaction.atomic():
        NodeModel.objects.select_for_update().get(pk=FIRST)
        held.set()
        assert free.wait(20)


def on_its_own_connection(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


def waiting(least: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0] >= least)


@pytest.mark.parametrize("change", [edit, resume, confirm, miss])
def test_whoever_changes_many_replicas_locks_them_in_the_order_in_which_requests_do(
    change: Callable[[], None],
) -> None:
    model, node = defining.create(OLD, by="tests", now=NOW), make_node()
    # The table has them the other way round: that is how a plain UPDATE would find them
    for index, pk in enumerate((SECOND, FIRST)):
        make_replica(node, index=index, id=pk, config_revision=model.config_revision)
    taken = leasing.take([Wanted(ask=ask()), Wanted(ask=ask())], Terms(), now=NOW)
    leases = [lease.id for lease in taken if lease is not None]
    if change is resume:
        NodeModel.objects.update(withdrawn_at=NOW)
    held, free = threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        works = [pool.submit(on_its_own_connection, partial(hold_the_first, held, free))]
        assert held.wait(20)
        works.append(pool.submit(on_its_own_connection, partial(release, leases)))
        until(partial(waiting, 1))
        works.append(pool.submit(on_its_own_connection, change))
        until(partial(waiting, 2), seconds=10)
        free.set()
        for done in works:
            done.result()
    assert set(NodeModel.objects.values_list("in_flight", flat=True)) == {0}
