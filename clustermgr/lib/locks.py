"""Numbered try-locks: one process does a tick, the others skip it."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


class LockKey(enum.IntEnum):
    """Never renumber: two releases run side by side during a deploy."""

    SWEEP_STALE = 1
    BOOTSTRAP = 6
    ENVIRONMENT_TOKEN = 7
    DISPATCH_OPS = 20
    DISPATCH_OPS_LINE = 21


# Our corner of PostgreSQL's advisory-lock space ("clus" in ASCII), so that another
# application in the same database cannot hold our numbers.
NAMESPACE = 0x636C7573


def try_lock(key: LockKey) -> bool:
    """Take `key` until the end of this transaction; False when another process has it.

    Transaction-scoped on purpose: it survives a transaction-mode pgbouncer and cannot
    outlive a dead process.
    """
    return bool(_take("SELECT pg_try_advisory_xact_lock(%s, %s)", key))


def wait_lock(key: LockKey) -> None:
    """Take `key` until the end of this transaction, after whoever has it.

    For the rare work that every process must do itself; a tick never waits.
    """
    _take("SELECT pg_advisory_xact_lock(%s, %s)", key)


@contextmanager
def next_in_line(key: LockKey, line: LockKey) -> Iterator[bool]:
    """Hold `key`, after whoever has it; False at once if somebody else already waits for it.

    For work that many ask for at the same moment and that one run does for all of them: who
    runs has seen everything that was committed before its turn came, so one waiter is enough.
    `line` is given up as soon as the turn has come, and within this transaction.
    """
    if not _take("SELECT pg_try_advisory_lock(%s, %s)", line):
        yield False
        return
    try:
        _take("SELECT pg_advisory_xact_lock(%s, %s)", key)
    finally:
        _take("SELECT pg_advisory_unlock(%s, %s)", line)
    yield True


def _take(statement: str, key: LockKey) -> object:
    if not connection.in_atomic_block:
        raise RuntimeError("a lock outside a transaction would be released at once")
    with connection.cursor() as cursor:
        cursor.execute(statement, [NAMESPACE, key.value])
        row = cursor.fetchone()
    return row and row[0]
