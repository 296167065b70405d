"""Who waits for whom, in the database of this process: others of the test run have theirs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, transaction

WAITING = """
SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE NOT granted AND datname = current_database()
"""


def waiting() -> int:
    """How many sessions wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # kept for the length of a transaction
        cursor.execute(WAITING)
        (count,) = cursor.fetchone()
    return int(count)


@contextmanager
def held(take: Callable[[], object]) -> Iterator[None]:
    """Somebody else has what `take` locks, for as long as the block."""
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            take()
            taken.set()
            assert free.wait(60)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(60)
    try:
        yield
    finally:
        free.set()
        thread.join()
