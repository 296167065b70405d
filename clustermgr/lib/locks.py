"""Numbered try-locks: one process does a tick, the others skip it."""

import enum

from django.db import connection


class LockKey(enum.IntEnum):
    """Never renumber: two releases run side by side during a deploy."""

    SWEEP_STALE = 1
    RECONCILE = 2
    DRAIN_OPS = 3
    REAP_OPS = 4
    SWEEP_LEASES = 5
    BOOTSTRAP = 6


# Our corner of PostgreSQL's advisory-lock space ("clus" in ASCII), so that another
# application in the same database cannot hold our numbers.
NAMESPACE = 0x636C7573


def try_lock(key: LockKey) -> bool:
    """Take `key` until the end of this transaction; False when another process has it.

    Transaction-scoped on purpose: it survives a transaction-mode pgbouncer and cannot
    outlive a dead process.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("try_lock outside a transaction would be released at once")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [NAMESPACE, key.value])
        row = cursor.fetchone()
    return bool(row and row[0])
