"""Telling what is there: backends on the disk, processes that run."""

from dataclasses import dataclass

from worker.machine import Backends, Installed, Process, Processes
from worker.wire import keys
from worker.wire.replies import ListedBackend, ListReply, RunningModel, RunningReply


@dataclass(frozen=True, slots=True)
class Looking:
    backends: Backends
    processes: Processes

    def listed(self) -> ListReply:
        return ListReply(backends=tuple(_listed(one) for one in self.backends.listed()))

    def running(self) -> RunningReply:
        """By their loopback addresses: that is what an exact stop is compared with."""
        found = map(_running, self.processes.running())
        return RunningReply(models=tuple(model for model in found if model))


def _listed(backend: Installed) -> ListedBackend:
    return ListedBackend(
        name=backend.name,
        is_system=backend.is_system,
        is_meta=backend.is_meta,
        installed_at=backend.installed_at,
        gallery_url=backend.gallery_url,
        version=backend.version,
        uri=backend.uri,
        digest=backend.digest,
    )


def _running(process: Process) -> RunningModel | None:
    key = keys.split(process.key)
    if key is None:
        return None
    return RunningModel(model_id=key[0], replica_index=key[1], address=process.loopback)
