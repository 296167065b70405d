"""Which backends not every node can run: for whoever places models."""

from collections.abc import Collection, Mapping

from django.db import connection

from backendops import statements
from nodes.builds import PLAIN, Offer


def limited(backends: Collection[str]) -> Mapping[str, Offer]:
    """One statement. As long as no gallery was read, every worker may have one of its own."""
    with connection.cursor() as cursor:
        cursor.execute(statements.LIMITED, {"names": list(backends), "plain": PLAIN})
        return {
            name: Offer(frozenset(installed or ()), frozenset(told or ()), frozenset(builds))
            for name, builds, installed, told in cursor.fetchall()
        }
