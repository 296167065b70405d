"""Fields that take what they are called and nothing that could be turned into it."""

from typing import Any

from rest_framework import serializers

from nodes.fields import UINT64_MAX


class Whole(serializers.IntegerField):
    """A JSON number without a fraction: "3", 3.0 and true are none."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """A JSON string: 80 is not "80", which may mean something else."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class ByteCount(serializers.IntegerField):
    """An unsigned 64-bit number, as workers count bytes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": UINT64_MAX, **kwargs})
