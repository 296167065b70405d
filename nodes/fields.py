"""Byte counts as the wire has them."""

from decimal import Decimal
from typing import Any

from django.db import models

UINT64_MAX = 2**64 - 1


class ByteCount(models.DecimalField):
    """An unsigned 64-bit number: workers report them and PostgreSQL's bigint is one bit short."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.update(max_digits=20, decimal_places=0)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Any, dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["max_digits"], kwargs["decimal_places"]
        return name, path, list(args), kwargs

    def from_db_value(self, value: Decimal | None, *_: Any) -> int | None:
        return None if value is None else int(value)

    def to_python(self, value: Any) -> Any:
        number = super().to_python(value)
        return None if number is None else int(number)
