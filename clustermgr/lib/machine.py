"""State moves by compare-and-set along a declared table."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import models

from clustermgr.lib.errors import InvalidMove

Moves = Mapping[str, frozenset[str]]
Row = TypeVar("Row", bound=models.Model)


def move(row: Row, to: str, **changes: Any) -> Row:
    """Put `row` into state `to` if its state *in the database* allows it, else refuse."""
    kind: Any = type(row)  # every stateful model names its MOVES and its STATE_FIELD
    field: str = kind.STATE_FIELD
    sources = [state for state, targets in kind.MOVES.items() if to in targets]
    legal = kind._base_manager.filter(pk=row.pk, **{f"{field}__in": sources})
    if not legal.update(**{field: to}, **changes):
        row.refresh_from_db(fields=[field])
        raise InvalidMove(f"{row} is {getattr(row, field)}, it cannot become {to}.")
    row.refresh_from_db(fields=[field, *changes])
    return row
