"""The id that ties a click to the log lines, tasks and events it caused."""

import re
import uuid
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="")

# What a proxy may hand us; anything else could forge log lines.
ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def accept(candidate: str) -> str:
    """The caller's own id when it is harmless, a fresh one otherwise."""
    return candidate if ACCEPTABLE.fullmatch(candidate) else uuid.uuid4().hex
