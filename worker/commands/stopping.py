"""Finding the processes that somebody means, and stopping them."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from worker.machine import Backends, Installed, Process, Processes, Refused, Stopped
from worker.wire import keys
from worker.wire.replies import ModelStopReply
from worker.wire.requests import ModelStopRequest, StopRequest

log = logging.getLogger(__name__)


class StopFailed(Refused):
    """A process survived; `stopped` are the keys of those that did not."""

    def __init__(self, words: str, *, stopped: tuple[str, ...]) -> None:
        super().__init__(words)
        self.stopped = stopped


@dataclass(frozen=True, slots=True)
class Stopping:
    backends: Backends
    processes: Processes

    def of_backend(self, name: str) -> list[Process]:
        """Every process of this backend, by whichever of its names it was started."""
        known = self.backends.find(name)
        names = {name, known.name, known.alias} - {""} if known else {name}

        def is_of(process: Process) -> bool:
            # One folder may go by several names: its own, and that of what points to it
            return process.backend in names or bool(known and runs(process, known))

        return [process for process in self.processes.running() if is_of(process)]

    async def stop(self, wanted: Iterable[str], *, free: bool) -> tuple[str, ...]:
        """Stop these keys at the same time; return which ended, or raise StopFailed."""
        listed = sorted(set(wanted))
        ends = await asyncio.gather(*(self._end(key, free=free) for key in listed))
        told = list(zip(listed, ends, strict=True))
        stopped = tuple(key for key, end in told if end.terminated)
        survivors = [f"{key}: {end.error}" for key, end in told if not end.terminated]
        if survivors:
            raise StopFailed(f"could not stop {'; '.join(survivors)}", stopped=stopped)
        return stopped

    async def _end(self, key: str, *, free: bool) -> Stopped:
        try:
            return await self.processes.stop(key, free=free)
        except Refused as refusal:
            return Stopped(freed=False, terminated=False, error=str(refusal))

    async def obey(self, request: StopRequest) -> None:
        """Stop everything, or whatever the word means; nobody waits for an answer."""
        hits = self._meant(request.backend) if request.backend else self.processes.running()
        stopped = await self.stop((process.key for process in hits), free=not request.force)
        log.info("stopped", extra={"asked": request.backend or "everything", "keys": stopped})

    async def exactly(self, request: ModelStopRequest) -> ModelStopReply:
        """Stop one process if it is still the one that is meant."""
        key = request.process_key
        stopping, process = self.processes.stopping(key), self._any(key)
        if process is None and not stopping:
            return ModelStopReply(matched=False, freed=False, terminated=True, process_key=key)
        address = process.loopback if process else ""
        if process and address != request.expected_address:
            problem = f"address mismatch: expected {request.expected_address}, have {address}"
        elif stopping:
            problem = f"{key} is already stopping"
        else:
            end = await self._end(key, free=not request.force)
            return ModelStopReply(
                matched=True,
                freed=end.freed,
                terminated=end.terminated,
                process_key=key,
                address=address,
                error=end.error,
            )
        return ModelStopReply(
            matched=True,
            freed=False,
            terminated=False,
            process_key=key,
            address=address,
            error=problem,
        )

    def _any(self, key: str) -> Process | None:
        """The process of this key, also one that is only starting."""
        starting = (process for process in self.processes.running() if process.key == key)
        return self.processes.find(key) or next(starting, None)

    def _meant(self, word: str) -> list[Process]:
        """A backend, a process key and a model may share a word: all of them are meant."""
        hits = {process.key: process for process in self.of_backend(word)}
        for process in self.processes.running():
            model = keys.split(process.key)
            # With a # in it the word is a key, and no other key's beginning
            if process.key == word or ("#" not in word and model and model[0] == word):
                hits[process.key] = process
        return list(hits.values())


def runs(process: Process, installed: Installed) -> bool:
    """Whether the process was started from exactly these files."""
    return process.directory == str(PurePath(installed.run).parent)
