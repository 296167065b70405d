"""JSON as Go reads and writes it, for dataclasses whose fields are named like the keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import msgspec

from clustermgr.lib.errors import InvalidInput, NodeRefused
from clustermgr.lib.gojson import GoObject


def dump(message: object) -> bytes:
    """Write a message: fields without a default always, the others unless empty."""
    return msgspec.json.encode(plain(message))


def plain(value: Any) -> Any:
    """Dataclasses as objects and tuples as lists, all the way down."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not is_dataclass(value):
        return value
    given = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: plain(part) for field, part in given if part or _required(field)}


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def load(payload: bytes) -> GoObject:
    """Read an object, or refuse with InvalidInput whatever else these bytes are."""
    return GoObject(parse(payload))


def parse(text: bytes | str) -> object:
    """Read any JSON value, or refuse with InvalidInput."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as nonsense:
        raise InvalidInput("The message is not JSON.") from nonsense


@contextmanager
def answering(subject: str) -> Iterator[None]:
    """While we read what a worker said, nonsense is the worker's fault, not the caller's."""
    try:
        yield
    except InvalidInput as nonsense:
        sentence = f"The worker's answer to {subject} is unreadable: {nonsense}"
        raise NodeRefused(sentence) from nonsense
