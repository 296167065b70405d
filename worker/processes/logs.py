"""What processes printed: the last lines of each, also of those that died."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from worker.machine import Line

LINES = 1000
LINE_LENGTH = 8192  # bytes; the rest of a longer line is dropped
PROCESSES = 256  # remembered; the one that was silent longest is forgotten
CHUNK = 65536

Hear = Callable[[Line], None]


class RingLogs:
    """The Logs protocol, and the reading of the pipes. All on the loop's thread."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[Line]] = OrderedDict()
        self._followers: dict[str, list[Hear]] = {}

    def keys(self) -> list[str]:
        return sorted(self._lines)

    def lines(self, key: str) -> list[Line]:
        return list(self._lines.get(key, ()))

    def follow(self, key: str, hear: Hear) -> Callable[[], None]:
        """Call `hear` for each new line of the process; the result ends it."""
        followers = self._followers.setdefault(key, [])
        followers.append(hear)

        def leave() -> None:
            if hear in followers:
                followers.remove(hear)
            if not followers and self._followers.get(key) is followers:
                del self._followers[key]

        return leave

    def add(self, key: str, line: Line) -> None:
        ring = self._lines.setdefault(key, deque(maxlen=LINES))
        self._lines.move_to_end(key)
        while len(self._lines) > PROCESSES:
            self._lines.popitem(last=False)
        ring.append(line)
        for hear in tuple(self._followers.get(key, ())):
            hear(line)

    async def read(self, key: str, stream: str, pipe: asyncio.StreamReader) -> None:
        """Take lines from a pipe until it ends; a process must never wait for its reader."""
        splitter = Splitter()
        while chunk := await pipe.read(CHUNK):
            for text in splitter.feed(chunk):
                self.add(key, Line(timestamp=datetime.now(UTC), stream=stream, text=text))
        for text in splitter.end():
            self.add(key, Line(timestamp=datetime.now(UTC), stream=stream, text=text))

    def last_words(self, key: str, *, since: datetime, count: int = 20) -> list[str]:
        """The last lines on stderr since then, oldest first."""
        told = (
            line.text
            for line in reversed(self._lines.get(key, ()))
            if line.stream == "stderr" and line.timestamp >= since
        )
        return list(islice(told, count))[::-1]


class Splitter:
    """Bytes to lines; keeps at most one line's worth of bytes whatever it is fed."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        *whole, rest = chunk.split(b"\n")
        lines = []
        for piece in whole:
            lines.append(_text(self._rest + piece[:LINE_LENGTH]))
            self._rest = b""
        self._rest = (self._rest + rest[:LINE_LENGTH])[:LINE_LENGTH]
        return lines

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    # A progress bar repaints its line after "\r"; what a terminal would show last is kept.
    shown = line[:LINE_LENGTH].rstrip(b"\r").rpartition(b"\r")[2]
    return shown.decode(errors="replace")
