"""A few connections beside Django's, for statements that run thousands of times a second.

Django's own are checked whenever they are taken and bind parameters in the client, which costs
more than such a statement does. These are checked after a failure, and PostgreSQL keeps their
plans. Nor do they wait for the disk: a crash of PostgreSQL may lose what the last half second
changed here. Whoever is in a transaction stays in it: then the statement is part of it, and is
as lasting as the rest.
"""

import atexit
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from django.db import connection
from psycopg_pool import ConnectionPool

Rows = Sequence[Sequence[Any]]
AT_MOST = 4
WAIT = 5.0  # seconds for a connection
DJANGOS = frozenset({"context", "cursor_factory", "prepare_threshold"})


def fetch(statement: str, parameters: dict[str, Any]) -> Rows:
    """The rows of one statement, committed when this returns.

    A connection that PostgreSQL closed while it was idle is replaced and the statement sent
    again; it must be harmless to run twice.
    """
    if connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: Rows = cursor.fetchall()
        return rows
    try:
        return _ask(statement, parameters)
    except psycopg.OperationalError:
        _pool().check()
        return _ask(statement, parameters)


def close() -> None:
    """Give all connections up; the next statement opens new ones."""
    if _pool.cache_info().currsize:
        _pool().close()
        _pool.cache_clear()


def _ask(statement: str, parameters: dict[str, Any]) -> Rows:
    with _pool().connection() as bare:
        return bare.execute(statement, parameters).fetchall()


@lru_cache(maxsize=1)
def _pool() -> "ConnectionPool[psycopg.Connection[Any]]":
    told = connection.get_connection_params()
    # Where and how to connect is the same for both; only what Django puts into Python differs
    known = {name: value for name, value in told.items() if name not in DJANGOS}
    known["options"] = f"{known.get('options', '')} -c synchronous_commit=off".strip()
    pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
        kwargs={**known, "autocommit": True, "prepare_threshold": 2},
        min_size=0,
        max_size=AT_MOST,
        timeout=WAIT,
        max_idle=60,
        open=True,
        name="fastlane",
    )
    return pool


atexit.register(close)
