"""Log lines are events with keys: text for people, JSON for machines; one line each."""

import json
import logging
import sys
from datetime import UTC, datetime

ALWAYS_THERE = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class OneLine(logging.Formatter):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        told = {key: value for key, value in vars(record).items() if key not in ALWAYS_THERE}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        moment = datetime.fromtimestamp(record.created, UTC)
        event = record.getMessage()
        if self._as_json:
            head = {"at": moment.isoformat(timespec="milliseconds"), "level": record.levelname}
            return json.dumps({**head, "logger": record.name, "event": event, **told}, default=str)
        pairs = "".join(f" {key}={value!r}" for key, value in told.items())
        return f"{moment:%H:%M:%S} {record.levelname.lower():7} {event}{pairs}"


def set_up(*, level: str, as_json: bool) -> None:
    """Everything to stderr; whoever runs us decides where that goes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(as_json=as_json))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # it repeats what we say ourselves
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
