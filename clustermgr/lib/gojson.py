"""JSON objects the way a Go program reads them, with bounds on everything we would store."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import checked, readable

MAX_COUNT = 2**64 - 1
Pairs = list[tuple[str, Any]]


def parse(raw: bytes) -> Any:
    """Read a document as a Go program does: UTF-8 only, no NaN, of two equal keys the last."""
    return _parse(raw, dict)


def parse_unambiguous(raw: bytes) -> Any:
    """Read a document in which no key stands twice, and which can be told back as it came."""
    document = _parse(raw, _unique)
    if b"\\u" in raw:  # the only way for half a surrogate pair to come in; no reply can carry one
        _check_unicode(document)
    return document


def _parse(raw: bytes, hook: Callable[[Pairs], dict[str, Any]]) -> Any:
    if not raw.strip():
        return {}
    try:
        return json.loads(raw.decode(), parse_constant=_refuse, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        raise InvalidInput("invalid request body") from None


def _check_unicode(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidInput("The body is not valid Unicode.") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _unique(pairs: Pairs) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput("The body says one thing twice: a key stands in it more than once.")
    return found


class GoObject:
    """Keys match in any case, the last one wins, and `null` leaves what was there."""

    __slots__ = ("_values",)

    def __init__(self, body: object) -> None:
        if not isinstance(body, Mapping):
            raise InvalidInput("The body must be a JSON object.")
        self._values: dict[str, object] = {}
        for key, value in body.items():
            name = str(key).lower()
            if value is not None or name not in self._values:
                self._values[name] = value

    def text(self, key: str, limit: int) -> str:
        """A string of at most `limit` bytes; "" when not given."""
        return checked(self._string(key), field=key, limit=limit)

    def raw(self, key: str) -> str:
        """A string that is never stored, hence unbounded; "" when not given."""
        return self._string(key)

    def count(self, key: str) -> int:
        """An unsigned 64-bit number; 0 when not given."""
        number = self.integer(key)
        if not 0 <= number <= MAX_COUNT:
            raise InvalidInput(f"{key} must be between 0 and {MAX_COUNT}.")
        return number

    def integer(self, key: str) -> int:
        """A whole number; 0 when not given. `true` and 1.0 are none, as in Go."""
        value = self._values.get(key)
        if value is None:
            return 0
        if type(value) is not int:
            raise InvalidInput(f"{key} must be a whole number.")
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        """An object; empty when not given."""
        value = self._values.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{key} must be a JSON object.")
        return value

    def items(self, key: str) -> list[object]:
        """A list that must be there; `null` is an empty one."""
        value = self._values.get(key)
        if value is None and key in self._values:
            return []
        if not isinstance(value, list):
            raise InvalidInput(f"{key} must be a list.")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false when not given."""
        value = self._values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise InvalidInput(f"{key} must be true or false.")
        return value

    def number(self, key: str) -> float:
        """A number; 0 when not given."""
        value = self._values.get(key)
        if value is None:
            return 0.0
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise InvalidInput(f"{key} must be a number.")
        try:
            return float(value)
        except OverflowError as error:
            raise InvalidInput(f"{key} is too large a number.") from error

    def texts(self, key: str, limit: int) -> tuple[str, ...]:
        """A list of strings of at most `limit` bytes; empty when not given."""
        values = self.items(key) if self._values.get(key) is not None else []
        return tuple(GoObject({key: value}).text(key, limit) for value in values)

    def words(self, key: str, limit: int) -> str:
        """A string for people to read, made fit rather than refused."""
        return readable(self._string(key), limit=limit)

    def reading(self, key: str) -> int | None:
        """An unsigned 64-bit number, or None for whatever is not one."""
        value = self._values.get(key)
        return value if type(value) is int and 0 <= value <= MAX_COUNT else None

    def word(self, key: str, limit: int) -> str | None:
        """A string of at most `limit` bytes, or None for whatever is not one."""
        if self._values.get(key) is None:
            return None
        try:
            return self.text(key, limit)
        except InvalidInput:
            return None

    def _string(self, key: str) -> str:
        value = self._values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise InvalidInput(f"{key} must be a string.")
        return value
