"""JSON as Go programs write it: keys in any case, unknown ones ignored, `null` is absent."""

from typing import Any, TypeVar

import msgspec

Message = TypeVar("Message", bound=msgspec.Struct)


class BadMessage(Exception):
    """These bytes are no such message; the sentence says what is wrong with them."""


def read(payload: bytes, kind: type[Message]) -> Message:
    """Read one message, or raise BadMessage."""
    return shaped(parsed(payload), kind)


def parsed(text: bytes | str) -> Any:
    """Read any JSON value, or raise BadMessage."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"invalid request: not JSON ({error})") from error


def shaped(value: Any, kind: type[Message]) -> Message:
    """Give a JSON object the shape of `kind`, or raise BadMessage."""
    if not isinstance(value, dict):
        raise BadMessage("invalid request: not a JSON object")
    try:
        return msgspec.convert(_plain(value), kind)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"invalid request: {error}") from error


def _plain(value: dict[Any, Any]) -> dict[str, Any]:
    # A null says nothing, also where the same key came before it with a value
    return {str(key).lower(): item for key, item in value.items() if item is not None}
