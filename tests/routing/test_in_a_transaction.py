"""What comes together in one process is served together, but not across a transaction."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from nodes.models import NodeModel
from scheduling.models import RouteLease
from scheduling.routing.asks import Lease
from scheduling.services import prefixing
from scheduling.services.routing import Router
from tests.factories import NOW, make_node, make_replica
from tests.locks import waiting
from tests.routing.test_hanging_up import somebody_has_the_replica
from tests.routing.test_leases import ask
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)


class RolledBack(Exception):
    pass


def in_line(router: Router) -> int:
    """Who waits, at the row or behind who waits there."""
    return waiting() + sum(len(line) for line in router._takes._lines.values())


def test_a_transaction_that_is_rolled_back_takes_nobody_elses_lease_along() -> None:
    make_replica(make_node())
    router = Router(clock=lambda: NOW, prefixes=prefixing.default())
    granted, go_on = threading.Event(), threading.Event()

    def plainly() -> Lease | None:
        try:
            return router.acquire(ask())
        finally:
            connection.close()

    def in_vain() -> None:
        try:
            with transaction.atomic():
                router.acquire(ask())
                granted.set()
                assert go_on.wait(60)
                raise RolledBack
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        with somebody_has_the_replica():
            first = pool.submit(plainly)
            until(lambda: in_line(router) == 1)
            vain = pool.submit(in_vain)
            until(lambda: in_line(router) == 2)
            last = pool.submit(plainly)
            until(lambda: in_line(router) == 3)
        assert granted.wait(60)
        go_on.set()
        assert isinstance(vain.exception(), RolledBack)
        kept = {lease.id for one in (first, last) if (lease := one.result())}
    assert len(kept) == 2
    assert set(RouteLease.objects.values_list("pk", flat=True)) == kept
    assert NodeModel.objects.get().in_flight == 2


def test_a_release_in_a_transaction_that_is_rolled_back_ends_nothing() -> None:
    make_replica(make_node())
    router = Router(clock=lambda: NOW, prefixes=prefixing.default())
    lease = router.acquire(ask())
    assert lease is not None
    with transaction.atomic():
        assert router.release(lease.id)
        transaction.set_rollback(True)
    assert RouteLease.objects.get().pk == lease.id
    assert NodeModel.objects.get().in_flight == 1
