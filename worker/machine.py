"""What the agent asks of the machine it runs on; a real one and a simulated one answer alike.

The commands of the wire are written once, over these protocols (worker/commands). Real files
and processes live in worker/backends and worker/processes, simulated ones in worker/fleet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class Refused(Exception):
    """The command cannot be carried out; the sentence goes into the reply's `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """A list of backends: a YAML index behind a path, a file:// or an http(s):// URL."""

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which backend to have, and from where.

    `backend` is a gallery's entry, possibly `<gallery>@<entry>`, or an alias; it is also what the
    result is found by. A `uri` (directory, archive, http(s) address) wins over the galleries.
    """

    backend: str
    galleries: Sequence[Gallery] = ()  # empty: the worker's own
    uri: str = ""
    name: str = ""
    alias: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One backend on the disk: a folder with a run.sh, and what is known about it."""

    name: str
    run: str  # absolute path of run.sh
    alias: str = ""
    version: str = ""
    digest: str = ""  # "sha256:<hex>" of what was unpacked
    uri: str = ""
    gallery_url: str = ""
    installed_at: str = ""  # RFC 3339
    is_system: bool = False
    is_meta: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far an install has come; `total` 0 means unknown."""

    phase: str  # resolving, downloading, extracting, starting
    file_name: str = ""
    current: int = 0  # bytes
    total: int = 0


Tell = Callable[[Step], None]  # cheap and thread-safe; who is told decides how often to pass it on


class Backends(Protocol):
    """What is on the disk."""

    def find(self, name: str) -> Installed | None:
        """The backend of this folder, metadata name or alias."""

    def listed(self) -> list[Installed]: ...

    async def fetch(self, wanted: Wanted, *, tell: Tell) -> Installed:
        """Download, check, unpack and swap in; Refused leaves what was there untouched."""

    async def delete(self, name: str) -> None:
        """Remove the files; Refused for an unknown or a system backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One live backend process, known by its key `<model or backend>#<replica>`."""

    key: str
    backend: str  # the name it was started for
    port: int
    pid: int
    directory: str  # that run.sh was started in: replaced files make the process obsolete

    @property
    def loopback(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a stop went; `error` may be set although it terminated (the free failed)."""

    freed: bool
    terminated: bool
    error: str = ""


class Processes(Protocol):
    """What runs."""

    def find(self, key: str) -> Process | None:
        """The process of this key if it is alive; one that died is forgotten here."""

    def running(self) -> list[Process]:
        """Alive and not being stopped."""

    def stopping(self, key: str) -> bool: ...

    async def start(self, key: str, backend: Installed) -> Process:
        """Return once the backend answers Health; Refused carries its last words on stderr."""

    async def stop(self, key: str, *, free: bool) -> Stopped:
        """Free (5 s) if wanted, SIGTERM to the group, SIGKILL after 15 s."""

    async def free(self, address: str) -> None:
        """Ask whatever listens at `address` to free its memory; best effort, 5 s."""

    async def close(self) -> None:
        """Stop everything; nothing is left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    timestamp: datetime
    stream: str  # stdout or stderr
    text: str


class Logs(Protocol):
    """What processes printed, 1,000 lines each; of dead ones, too."""

    def keys(self) -> list[str]:
        """Process keys with lines."""

    def lines(self, key: str) -> list[Line]: ...

    def follow(self, key: str, hear: Callable[[Line], None]) -> Callable[[], None]:
        """Call `hear` for each new line of the process; the result ends it."""
