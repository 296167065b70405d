"""Empties the tables that a test committed to.

Django truncates all of them and then makes every permission anew, whatever was touched; that
takes longer than most tests do. What migrations made is kept here, and a test that changed even
that gets Django's way.
"""

from typing import Any

from django.db import connection, transaction
from django.test import TransactionTestCase

KEPT = frozenset({"django_migrations", "django_content_type", "auth_permission"})
LARGE = 1_000_000  # bytes: rows that are only deleted would be in the way of later tests

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


class Emptying:
    """One per process; it learns what is kept before the first test commits anything."""

    def __init__(self) -> None:
        every = connection.introspection.django_table_names(only_existing=True)
        self._tables = sorted(set(every) - KEPT)
        self._kept = _contents()

    def __call__(self, case: TransactionTestCase) -> None:
        used = _used(self._tables)
        if _contents() != self._kept:
            _flush(case)
            self._kept = _contents()
        elif used:
            _empty(list(used), truncate=max(used.values()) > LARGE)


def _contents() -> list[tuple[Any, ...]]:
    return _rows(
        "SELECT 'types', string_agg(it::text, ';' ORDER BY id) FROM django_content_type it"
        " UNION ALL"
        " SELECT 'permissions', string_agg(it::text, ';' ORDER BY id) FROM auth_permission it"
    )


def _used(tables: list[str]) -> dict[str, int]:
    """Tables with rows, and how large each is."""
    looks = ", ".join(f"('{name}', EXISTS (SELECT FROM {name}))" for name in tables)
    size = "SELECT name, pg_relation_size(name::regclass)"
    return dict(_rows(f"{size} FROM (VALUES {looks}) AS look (name, used) WHERE used"))


def _empty(tables: list[str], *, truncate: bool) -> None:
    if truncate:
        statements = [f"TRUNCATE {', '.join(tables)} CASCADE"]
    else:
        # All that refer to each other go together: nothing has to be looked up for any row
        statements = ["SET LOCAL session_replication_role = replica"]
        statements += [f"DELETE FROM {name}" for name in tables]  # noqa: S608 -- our own names
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("; ".join(statements))


def _rows(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
