from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, transaction

from clustermgr.lib.locks import LockKey, try_lock


@pytest.mark.django_db(transaction=True)
def test_one_of_many_gets_the_lock_and_the_others_do_not_wait() -> None:
    together = Barrier(8)

    def attempt(_: int) -> bool:
        try:
            with transaction.atomic():
                together.wait(60)
                won = try_lock(LockKey.SWEEP_STALE)
                together.wait(60)  # nobody lets go before all have tried
                return won
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


@pytest.mark.django_db(transaction=True)
def test_a_lock_ends_with_its_transaction() -> None:
    for _ in range(2):
        with transaction.atomic():
            assert try_lock(LockKey.SWEEP_STALE)


@pytest.mark.django_db(transaction=True)
def test_a_lock_outside_a_transaction_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="outside a transaction"):
        try_lock(LockKey.SWEEP_STALE)


def test_numbers_are_not_shared() -> None:
    assert len({key.value for key in LockKey}) == len(LockKey.__members__)
