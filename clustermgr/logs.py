"""Log lines are events with keys; secrets never get that far."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from clustermgr.conf import ClusterSettings
from clustermgr.lib.context import request_id

# What every LogRecord has by itself; whatever else is on it came in by `extra`.
BUILT_IN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _keys(record: logging.LogRecord) -> dict[str, Any]:
    keys = {key: value for key, value in record.__dict__.items() if key not in BUILT_IN}
    if current := request_id.get():
        keys.setdefault("request_id", current)
    return keys


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_keys(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """The same for people: the event, then key=value."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        keys = "".join(f" {key}={value}" for key, value in _keys(record).items())
        line = f"{at} {record.levelname.lower():7} {record.name}: {record.getMessage()}{keys}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class AnsweredHandshakes(logging.Filter):
    """uvicorn calls a WebSocket that was refused by an HTTP answer a fault of ours; it is none."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing handshake."


def logging_config(cluster: ClusterSettings) -> dict[str, Any]:
    """Everything to stderr; whoever runs us decides where that goes."""
    formatter = JsonFormatter if cluster.log_format == "json" else TextFormatter
    quiet = {"level": "WARNING"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "filters": {"answered": {"()": AnsweredHandshakes}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": cluster.log_level},
        "loggers": {
            "django": {"level": "INFO", "handlers": [], "propagate": True},
            "django.server": {**quiet, "handlers": [], "propagate": True},
            "celery": quiet,
            "kombu": quiet,
            "pgmq": quiet,
            "psycopg.pool": {"level": "ERROR"},
            "nats": quiet,
            "uvicorn": {**quiet, "handlers": [], "propagate": True},
            "uvicorn.error": {"filters": ["answered"]},
            "uvicorn.access": {**quiet, "handlers": [], "propagate": True},
            "celery.beat": quiet,
        },
    }
