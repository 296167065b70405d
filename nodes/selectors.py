"""Which nodes somebody means: label selectors, read strictly and matched purely.

    gpu.vendor=nvidia, zone in (a, "b, upper"), !spot, disk.gb>500

Commas mean *and*. What cannot be read is refused, never ignored: a selector that fell back to
"every node" would place work on machines it was written to avoid.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import check_key, check_value, shown

MAX_TERMS = 64  # requirements in a selector, and values in one list

# The same text is used by PostgreSQL (querysets.matching): nothing either side reads differently.
NUMBER = r"-?[0-9]+(\.[0-9]+)?"
_NUMBER = re.compile(NUMBER)
_BARE = re.compile(r"[A-Za-z0-9._/+:@%-]+")
_TOKEN = re.compile(
    r'\s*(?:(?P<quoted>"(?:[^"\\]|\\["\\])*")|(?P<sign>==|!=|[=<>!(),])|(?P<word>[^\s,()"=!<>]+))'
)


class Operator(enum.StrEnum):
    IN = "in"  # one value: equality
    NOT_IN = "notin"  # holds where the key is absent, too
    EXISTS = "exists"
    MISSING = "missing"
    ABOVE = ">"
    BELOW = "<"


SIGNS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.ABOVE,
    "<": Operator.BELOW,
}
WORDS = {"in": Operator.IN, "notin": Operator.NOT_IN}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.MISSING:
                return value is None
        return self._compares(value)

    @property
    def bound(self) -> Decimal:
        return Decimal(self.values[0])

    def _compares(self, value: str | None) -> bool:
        if value is None or not _NUMBER.fullmatch(value):
            return False
        if self.operator is Operator.ABOVE:
            return Decimal(value) > self.bound
        return Decimal(value) < self.bound

    def __str__(self) -> str:
        values = ",".join(_written(value) for value in self.values)
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.MISSING:
                return f"!{self.key}"
            case Operator.ABOVE | Operator.BELOW:
                return f"{self.key}{self.operator}{values}"
        if len(self.values) > 1:
            return f"{self.key} {self.operator} ({values})"
        return f"{self.key}{'=' if self.operator is Operator.IN else '!='}{values}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold; none at all means every node."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; only an empty text selects everything."""
        reader = _Reader(text)
        found: list[Requirement] = []
        while not reader.finished():
            if found:
                reader.expect(",")
            found.append(_requirement(reader))
            _bounded(found)
        return cls(tuple(sorted(set(found))))

    @classmethod
    def from_wire(cls, document: object) -> Self:
        """Read LocalAI's form, an object of exact pairs; only `{}` selects everything."""
        if not isinstance(document, Mapping):
            raise InvalidInput("A selector is an object of label keys and values.")
        _bounded(document)
        return cls(
            tuple(
                sorted(
                    Requirement(
                        key=check_key(key), operator=Operator.IN, values=(check_value(value),)
                    )
                    for key, value in document.items()
                )
            )
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _requirement(reader: "_Reader") -> Requirement:
    if reader.accept("!"):
        return Requirement(key=reader.key(), operator=Operator.MISSING)
    key = reader.key()
    kind, text = reader.peek()
    if kind == "word" and text in WORDS:
        reader.take()
        return Requirement(key=key, operator=WORDS[text], values=_list(reader))
    if kind != "sign" or text not in SIGNS:
        return Requirement(key=key, operator=Operator.EXISTS)
    reader.take()
    value = reader.value()
    operator = SIGNS[text]
    if operator in (Operator.ABOVE, Operator.BELOW) and not _NUMBER.fullmatch(value):
        raise InvalidInput(f"{key}{text} needs a number, not {shown(value)}.")
    return Requirement(key=key, operator=operator, values=(value,))


def _list(reader: "_Reader") -> tuple[str, ...]:
    reader.expect("(")
    values = [reader.value()]
    while reader.accept(","):
        values.append(reader.value())
        _bounded(values)
    reader.expect(")")
    return tuple(sorted(set(values)))


class _Reader:
    """The tokens of a selector, one at a time."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._at = 0

    def finished(self) -> bool:
        return self._at >= len(self._text)

    def peek(self) -> tuple[str, str]:
        kind, text, _ = self._next()
        return kind, text

    def take(self) -> tuple[str, str]:
        kind, text, self._at = self._next()
        return kind, text

    def accept(self, sign: str) -> bool:
        if self.peek() != ("sign", sign):
            return False
        self.take()
        return True

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self._unreadable(f"expected {sign!r}")

    def key(self) -> str:
        kind, text = self.peek()
        if kind != "word":
            raise self._unreadable("expected a label key")
        self.take()
        return check_key(text)

    def value(self) -> str:
        kind, text = self.peek()
        if kind not in ("word", "quoted"):
            raise self._unreadable('expected a value (an empty one is written "")')
        self.take()
        return check_value(re.sub(r"\\(.)", r"\1", text[1:-1]) if kind == "quoted" else text)

    def _next(self) -> tuple[str, str, int]:
        if self.finished():
            return "end", "", self._at
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise self._unreadable("a quote is not closed")
        return found.lastgroup, found[found.lastgroup], found.end()

    def _unreadable(self, why: str) -> InvalidInput:
        rest = self._text[self._at : self._at + 20].strip()
        where = shown(rest) if rest else "its end"
        return InvalidInput(f"The selector cannot be read at {where}: {why}.")


def _bounded(terms: Mapping[object, object] | list[Requirement] | list[str]) -> None:
    if len(terms) > MAX_TERMS:
        raise InvalidInput(f"A selector has at most {MAX_TERMS} terms.")


def _written(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
