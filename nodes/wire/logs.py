"""What a worker's HTTP server tells of its backends' output. Pure: bytes in, values out."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from urllib.parse import quote

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.gojson import GoObject
from nodes.wire import codec

INDEX = "/v1/backend-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    timestamp: str  # as it came: Go writes nanoseconds, and Python would cut them
    stream: str
    text: str

    @classmethod
    def of(cls, document: object) -> Self:
        given = GoObject(document)
        return cls(
            timestamp=given.raw("timestamp"),
            stream=given.raw("stream"),
            text=given.raw("text"),
        )

    @property
    def at(self) -> datetime | None:
        """When it was printed; None for a time that nobody can read."""
        try:
            moment = datetime.fromisoformat(self.timestamp)
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def log_path(key: str) -> str:
    """Where the lines of a model, or of one process `model#replica`, are.

    Escaped twice, because workers decode twice: once is not enough for a % in a model's name.
    """
    return f"{INDEX}/{quote(quote(key, safe=''), safe='')}"


def follow_path(key: str) -> str:
    return f"{log_path(key)}/ws"


def read_index(payload: bytes) -> list[str]:
    """The models that printed something; Go writes an empty list as null."""
    with codec.answering(INDEX):
        found = codec.parse(payload)
        if not isinstance(found, list | None) or not all(isinstance(it, str) for it in found or ()):
            raise InvalidInput("It is not a list of names.")
        return found or []


def read_lines(payload: bytes) -> list[LogLine]:
    """What was printed, in the worker's order."""
    with codec.answering(INDEX):
        found = codec.parse(payload)
        if not isinstance(found, list | None):
            raise InvalidInput("It is not a list of lines.")
        return [LogLine.of(line) for line in found or ()]


def read_frame(text: str) -> list[LogLine] | None:
    """The lines of one frame of a log that is being followed; None for an unknown kind."""
    with codec.answering(INDEX):
        given = codec.load(text.encode(errors="replace"))
        kind = given.raw("type")
        if kind == "initial":
            return [LogLine.of(line) for line in given.items("lines")]
        return [LogLine.of(given.mapping("line"))] if kind == "line" else None
