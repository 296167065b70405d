"""Every subject that a node and the manager use, as data: who says it, and who listens.

What a role may publish and subscribe is generated from SUBJECTS, so a subject that is not here
is one that a locked-down server refuses.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from clustermgr.lib.errors import InvalidInput

# Lossy on purpose, as workers do it: ids travel in the payload, never out of a subject.
SEPARATORS = str.maketrans(dict.fromkeys(".*> \t\n", "-"))
# What workers do not replace either; a carriage return would end the protocol's line.
UNSENDABLE = re.compile("[\x00-\x1f\x7f]")

NOTHING = b"null"  # the body of a message that has none, as Go writes it
RUNNING_MODELS_REQUEST = LIST_REQUEST = b"{}"


def sanitise(token: str) -> str:
    """Make `token` one part of a subject; refuse what cannot be one."""
    part = token.translate(SEPARATORS)
    if not part:
        raise InvalidInput("An empty name cannot be part of a subject.")
    if UNSENDABLE.search(part):
        raise InvalidInput("A name with control characters cannot be part of a subject.")
    return part


class Role(StrEnum):
    MANAGER = "manager"
    WORKER = "worker"  # a node of type backend
    AGENT = "agent"


class Kind(StrEnum):
    REQUEST = "request"  # the subscriber answers into the publisher's inbox
    EVENT = "event"  # nobody answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`nodes.<node>.<path>`; an `{op}` in the path is one more token."""

    path: str
    kind: Kind
    publisher: Role = Role.MANAGER
    subscribers: tuple[Role, ...] = (Role.WORKER,)

    def of(self, node_id: UUID | str, *, op: str = "") -> str:
        """The subject of one node, and of one operation where there are several."""
        path = self.path.format(op=sanitise(op)) if "{op}" in self.path else self.path
        return f"nodes.{sanitise(str(node_id))}.{path}"

    def any_of(self, node_id: UUID | str) -> str:
        """The pattern that covers every operation of one node."""
        return f"nodes.{sanitise(str(node_id))}.{self.path.format(op='*')}"


INSTALL = Subject(path="backend.install", kind=Kind.REQUEST)
UPGRADE = Subject(path="backend.upgrade", kind=Kind.REQUEST)
INSTALL_PROGRESS = Subject(  # of upgrades, too
    path="backend.install.{op}.progress",
    kind=Kind.EVENT,
    publisher=Role.WORKER,
    subscribers=(Role.MANAGER,),
)
CANCEL = Subject(path="backend.cancel", kind=Kind.REQUEST)  # ours: LocalAI's workers finish
STOP_BACKEND = Subject(path="backend.stop", kind=Kind.EVENT, subscribers=(Role.WORKER, Role.AGENT))
DELETE_BACKEND = Subject(path="backend.delete", kind=Kind.REQUEST)
LIST_BACKENDS = Subject(path="backend.list", kind=Kind.REQUEST)
RUNNING_MODELS = Subject(path="models.running", kind=Kind.REQUEST)
UNLOAD_MODEL = Subject(path="model.unload", kind=Kind.REQUEST)
STOP_MODEL = Subject(path="model.stop", kind=Kind.REQUEST)
DELETE_MODEL = Subject(path="model.delete", kind=Kind.REQUEST)
STOP_NODE = Subject(path="stop", kind=Kind.EVENT)

# LocalAI's workers listen to these when they have S3; we move files over HTTP and never ask.
FILES = tuple(
    Subject(path=f"files.{verb}", kind=Kind.REQUEST)
    for verb in ("ensure", "stage", "temp", "listdir")
)

SUBJECTS = (
    INSTALL,
    UPGRADE,
    INSTALL_PROGRESS,
    CANCEL,
    STOP_BACKEND,
    DELETE_BACKEND,
    LIST_BACKENDS,
    RUNNING_MODELS,
    UNLOAD_MODEL,
    STOP_MODEL,
    DELETE_MODEL,
    STOP_NODE,
    *FILES,
)


def running_models_subject(node_id: UUID | str) -> str:
    """Where a worker is asked which processes it has."""
    return RUNNING_MODELS.of(node_id)
