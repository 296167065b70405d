"""State moves by compare-and-set along a declared table."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import models

from clustermgr.lib.errors import InvalidMove

Moves = Mapping[str, frozenset[str]]
Row = TypeVar("Row", bound=models.Model)


def move(row: Row, to: str, **changes: Any) -> Row:
    """Put `row` into state `to` if its state *in the database* allows it, else refuse."""
    kind: Any = type(row)  # every stateful model carries MOVES and a status column
    sources = [state for state, targets in kind.MOVES.items() if to in targets]
    legal = kind._base_manager.filter(pk=row.pk, status__in=sources)
    if not legal.update(status=to, **changes):
        row.refresh_from_db(fields=["status"])
        raise InvalidMove(f"{row} is {getattr(row, 'status')}, it cannot become {to}.")  # noqa: B009
    row.refresh_from_db(fields=["status", *changes])
    return row
