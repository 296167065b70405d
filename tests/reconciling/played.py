"""Workers of a played cluster: they keep their processes whatever becomes of our rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from uuid import UUID

from clustermgr.lib.bus import Quiet
from clustermgr.lib.errors import BusError, NodeUnreachable
from nodes.wire import (
    InstallReply,
    InstallRequest,
    ModelStopReply,
    ModelStopRequest,
    ProcessKey,
    RunningModel,
    RunningReply,
    subjects,
)


@dataclass
class Process:
    address: str
    loads: int = 0  # how often it was asked to load


class Workers:
    """All of them at the other end of one bus; nothing is ever late, or lost."""

    def __init__(self) -> None:
        self.processes: dict[UUID, dict[ProcessKey, Process]] = {}
        self.ports = count(50052)

    def join(self, node_id: UUID) -> None:
        self.processes[node_id] = {}

    def running(self, node_id: UUID) -> tuple[RunningModel, ...]:
        return tuple(
            RunningModel(
                model_id=key.model_id, replica_index=key.replica_index, address=process.address
            )
            for key, process in self.processes[node_id].items()
        )

    def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: timedelta,
        events: str | None = None,
        on_event: Callable[[bytes], None] | None = None,
        quiet: Quiet | None = None,
    ) -> bytes:
        answers: dict[str, Callable[[UUID, bytes], bytes]] = {
            subjects.RUNNING_MODELS.path: self._list,
            subjects.INSTALL.path: self._install,
            subjects.STOP_MODEL.path: self._stop,
        }
        _, node_id, path = subject.split(".", 2)
        return answers[path](UUID(node_id), payload)

    def request_each(
        self, subjects: Sequence[str], payload: bytes, *, timeout: timedelta
    ) -> list[bytes | BusError]:
        return [NodeUnreachable("Nobody asks many here.") for _ in subjects]

    def publish(self, subject: str, payload: bytes) -> None:
        raise AssertionError(f"{subject} is told to nobody here")

    def _list(self, node_id: UUID, _: bytes) -> bytes:
        return RunningReply(models=self.running(node_id)).encode()

    def _install(self, node_id: UUID, payload: bytes) -> bytes:
        """As workers do: a process that lives is handed out again."""
        asked = InstallRequest.decode(payload)
        key = ProcessKey(model_id=asked.model_id, replica_index=asked.replica_index)
        fresh = Process(address=f"127.0.0.1:{next(self.ports)}")
        process = self.processes[node_id].setdefault(key, fresh)
        return InstallReply(success=True, address=process.address).encode()

    def _stop(self, node_id: UUID, payload: bytes) -> bytes:
        asked = ModelStopRequest.decode(payload)
        running = self.processes[node_id]
        process = running.get(key := ProcessKey.parse(asked.process_key))
        same = process is None or process.address == asked.expected_address
        if same:
            running.pop(key, None)
        return ModelStopReply(
            matched=process is not None, freed=same, terminated=same, process_key=str(key)
        ).encode()
