"""Install, upgrade, delete: whatever changes what is on the disk."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from worker.commands.operations import Operation, Operations
from worker.commands.stopping import StopFailed, Stopping, runs
from worker.machine import Backends, Process, Processes, Refused, Tell
from worker.wire.reading import BadMessage
from worker.wire.replies import CancelReply, InstallReply, StoppingReply
from worker.wire.requests import (
    Artifact,
    CancelRequest,
    DeleteRequest,
    InstallRequest,
    UpgradeRequest,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Installing:
    """Different backends at the same time, one backend after the other."""

    backends: Backends
    processes: Processes
    stopping: Stopping
    host: str  # that others reach our processes at
    operations: Operations
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def install(self, request: InstallRequest, *, tell: Tell) -> InstallReply:
        """Have a process of the backend for this model and slot; asking again is harmless."""
        with self._operation(request, tell) as operation:
            try:
                async with self._lock(request.backend):
                    process = await self._install(request, operation)
            except (Refused, BadMessage) as refusal:
                return InstallReply(success=False, error=str(refusal))
        return InstallReply(success=True, address=f"{self.host}:{process.port}")

    async def upgrade(self, request: UpgradeRequest, *, tell: Tell) -> StoppingReply:
        """Stop every process of the backend, fetch it anew, start none."""
        stopped: tuple[str, ...] = ()
        error = ""
        with self._operation(request, tell) as operation:
            try:
                wanted = request.wanted()
                async with self._lock(request.backend):
                    operation.check()
                    stopped = await self._stop_all_of(request.backend)
                    await operation.fetched(self.backends.fetch(wanted, tell=tell))
            except StopFailed as failure:
                stopped, error = failure.stopped, str(failure)
            except (Refused, BadMessage) as refusal:
                error = str(refusal)
        return _stopping_reply(stopped, error)

    async def delete(self, request: DeleteRequest) -> StoppingReply:
        """Stop the backend's processes, then remove its files; one that survives saves them."""
        stopped: tuple[str, ...] = ()
        error = ""
        lock = self._lock(request.backend)
        if lock.locked():  # waiting would outlast the one who asks
            return _stopping_reply((), f"{request.backend} is being installed; try again later")
        try:
            async with lock:
                hits = self.stopping.of_backend(request.backend)
                stopped = await self.stopping.stop((hit.key for hit in hits), free=True)
                await self.backends.delete(request.backend)
        except StopFailed as failure:
            stopped, error = failure.stopped, str(failure)
        except Refused as refusal:
            error = str(refusal)
        return _stopping_reply(stopped, error)

    async def cancel(self, request: CancelRequest) -> CancelReply:
        """Give a download up; what came so far is kept for the next try."""
        operation = self.operations.find(request.op_id)
        if operation is None:
            return CancelReply(cancelled=False, error=f"no operation {request.op_id} is running")
        if not operation.cancel():
            error = f"operation {request.op_id} is past its download and will finish"
            return CancelReply(cancelled=False, error=error)
        return CancelReply(cancelled=True)

    async def _install(self, request: InstallRequest, operation: Operation) -> Process:
        operation.check()
        key = request.key
        if self.processes.stopping(key):
            raise Refused(f"{key} is stopping")
        if request.force:
            await self._stop_all_of(request.backend, and_also=key)
        elif current := await self._reusable(key, request.backend):
            return current
        installed = None if request.force else self.backends.find(request.backend)
        if installed is None:
            fetch = self.backends.fetch(request.wanted(), tell=operation.tell)
            installed = await operation.fetched(fetch)
        operation.starts()
        return await self.processes.start(key, installed)

    async def _reusable(self, key: str, backend: str) -> Process | None:
        """The process of this key if it runs what is asked for; otherwise it is stopped."""
        process = self.processes.find(key)
        if process is None:
            return None
        installed = self.backends.find(backend)
        if installed and runs(process, installed):
            return process
        await self.stopping.stop([key], free=True)
        return None

    async def _stop_all_of(self, backend: str, *, and_also: str = "") -> tuple[str, ...]:
        wanted = {process.key for process in self.stopping.of_backend(backend)}
        if and_also and self.processes.find(and_also):
            wanted.add(and_also)
        return await self.stopping.stop(wanted, free=False)

    def _lock(self, backend: str) -> asyncio.Lock:
        return self._locks.setdefault(backend, asyncio.Lock())

    @contextmanager
    def _operation(self, request: Artifact, tell: Tell) -> Iterator[Operation]:
        operation = Operation(request.op_id, tell)
        self.operations.began(operation)
        try:
            yield operation
        finally:
            self.operations.ended(operation)


def _stopping_reply(stopped: tuple[str, ...], error: str) -> StoppingReply:
    return StoppingReply(
        success=not error,
        error=error,
        stopped_process_keys=stopped,
        reports_stopped_processes=True,
    )
