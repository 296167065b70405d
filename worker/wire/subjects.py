"""Where a worker listens and speaks: `nodes.<node>.<path>`."""

# Lossy, as every LocalAI program does it: ids travel in the payload, never out of a subject.
_TOKEN = {ord(character): "-" for character in ".*> \t\n"}

INSTALL = "backend.install"
UPGRADE = "backend.upgrade"
CANCEL = "backend.cancel"
STOP_BACKEND = "backend.stop"
DELETE_BACKEND = "backend.delete"
LIST_BACKENDS = "backend.list"
RUNNING_MODELS = "models.running"
UNLOAD_MODEL = "model.unload"
STOP_MODEL = "model.stop"
DELETE_MODEL = "model.delete"
STOP_NODE = "stop"


def token(text: str) -> str:
    """Make `text` one part of a subject."""
    return text.translate(_TOKEN)


def of(node_id: str, path: str) -> str:
    return f"nodes.{token(node_id)}.{path}"


def progress(node_id: str, op_id: str) -> str:
    """Where an operation's ticks go; those of upgrades, too."""
    return of(node_id, f"{INSTALL}.{token(op_id)}.progress")
