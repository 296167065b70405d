"""A node that keeps an inventory and obeys, or does not, as a test tells it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from django.db import connection

from nodes.models import BackendNode
from nodes.wire import InstalledBackend, InstallReply, ListReply, StoppingReply, subjects
from tests.factories import NOW, make_node
from tests.scripted import ScriptedWorker

Asked = dict[str, Any]


@dataclass
class PlayedNode:
    """Listens to install, upgrade, delete and list on the real NATS; counts what it did."""

    node: BackendNode
    installed: dict[str, InstalledBackend] = field(default_factory=dict)
    did: list[tuple[str, Asked]] = field(default_factory=list)  # (verb, request)
    refuse: str = ""  # the error of every reply, if any
    silent: bool = False  # takes the request, does it, and never answers
    lies: bool = False  # says yes and does nothing
    before: Callable[[], None] = lambda: None  # runs before each command is carried out

    def __post_init__(self) -> None:
        self.worker = ScriptedWorker(node_id=self.node.pk)

    @classmethod
    def called(cls, name: str, **changes: Any) -> Self:
        return cls(node=make_node(name, **{"approved_at": NOW - timedelta(days=1), **changes}))

    def __enter__(self) -> Self:
        self.worker.__enter__()
        self.worker.answers(subjects.INSTALL, self._install)
        self.worker.answers(subjects.UPGRADE, self._upgrade)
        self.worker.answers(subjects.DELETE_BACKEND, self._delete)
        self.worker.answers(subjects.LIST_BACKENDS, self._list)
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.__exit__()

    def has(self, name: str, *, version: str = "1", stamp: int = 0) -> None:
        """Put a backend on its disk; `stamp` tells one installation from the next."""
        self.installed[name] = InstalledBackend(
            name=name,
            is_system=False,
            is_meta=False,
            version=version,
            digest=f"sha256:{version}",
            installed_at=f"2030-01-01T00:00:{stamp:02d}Z",
        )

    def _install(self, payload: bytes) -> bytes | None:
        asked = self._begin("install", payload)
        done = not self.refuse
        fresh = asked.get("force") or asked["backend"] not in self.installed
        if done and not self.lies and fresh:
            self.has(asked["backend"], stamp=len(self.did))
        return self._end(InstallReply(success=done, address="h:50052", error=self.refuse))

    def _upgrade(self, payload: bytes) -> bytes | None:
        asked = self._begin("upgrade", payload)
        if not self.refuse and not self.lies:
            self.has(asked["backend"], version=f"up-{len(self.did)}", stamp=len(self.did))
        return self._end(self._stopping())

    def _delete(self, payload: bytes) -> bytes | None:
        asked = self._begin("delete", payload)
        if not self.refuse and not self.lies:
            self.installed.pop(asked["backend"], None)
        return self._end(self._stopping())

    def _list(self, payload: bytes) -> bytes:
        return ListReply(backends=tuple(self.installed.values())).encode()

    def _stopping(self) -> StoppingReply:
        return StoppingReply(
            success=not self.refuse, error=self.refuse, reports_stopped_processes=True
        )

    def _begin(self, verb: str, payload: bytes) -> Asked:
        self.before()
        connection.close()  # what `before` may have opened on this thread
        asked: Asked = json.loads(payload)
        self.did.append((verb, asked))
        return asked

    def _end(self, reply: InstallReply | StoppingReply) -> bytes | None:
        return None if self.silent else reply.encode()
