"""Which lines of a log somebody wants, and how a file of them looks. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from nodes.wire.logs import LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieve:
    """Every condition narrows; one that is not set lets everything through."""

    stream: str = ""
    text: str = ""  # anywhere in the line, in any case
    since: datetime | None = None
    tail: int | None = None  # of what the others let through

    def pick(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """What passes, in the order it came."""
        passed = [line for line in lines if self._passes(line)]
        return passed if self.tail is None else passed[-self.tail :] if self.tail else []

    def _passes(self, line: LogLine) -> bool:
        if self.stream and line.stream != self.stream:
            return False
        if self.text and self.text.casefold() not in line.text.casefold():
            return False
        # A line without a readable time is shown: dropping it would hide what nobody can date
        return self.since is None or line.at is None or line.at >= self.since


def as_text(lines: Iterable[LogLine]) -> str:
    """One line each; what a terminal would obey instead of show stays visible as a sign."""
    return "".join(f"{line.timestamp} {line.stream} {_shown(line.text)}\n" for line in lines)


def _shown(text: str) -> str:
    return "".join(
        sign if sign.isprintable() or sign == "\t" else sign.encode("unicode_escape").decode()
        for sign in text
    )
