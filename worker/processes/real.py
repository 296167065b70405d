"""The Processes protocol over real processes."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from worker.machine import Installed, Process, Refused, Stopped
from worker.processes import child
from worker.processes.logs import RingLogs
from worker.processes.orphans import PidFiles
from worker.processes.ports import Ports
from worker.rpc.client import BackendClient

log = logging.getLogger(__name__)

PORTS_TRIED = 3


class PortLost(Refused):
    """It died, and somebody else has its port: another one may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How patient we are; the defaults are LocalAI's."""

    ready: timedelta = timedelta(seconds=30)
    probe_every: timedelta = timedelta(milliseconds=200)
    probe: timedelta = timedelta(seconds=2)
    free: timedelta = timedelta(seconds=5)
    terminate: timedelta = timedelta(seconds=15)
    kill: timedelta = timedelta(seconds=5)


@dataclass(eq=False, slots=True, kw_only=True)
class Entry:
    """A key that is taken: by a process that starts, serves or is being stopped."""

    process: Process
    handle: asyncio.subprocess.Process
    mark: str
    since: datetime
    ready: bool = False
    stopping: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class RealProcesses:
    """Starts, watches and stops backend processes.

    One task per process waits for its end and is the only door out: it ends the rest of the group,
    empties the pipes, gives the port back and forgets the key, however the process came to die.
    """

    def __init__(
        self,
        *,
        ports: Ports,
        logs: RingLogs,
        state: Path,
        token: str = "",
        environment: Mapping[str, str] = os.environ,
        timing: Timing = Timing(),  # noqa: B008  frozen
    ) -> None:
        """`state` holds pid files; what an earlier life left running is ended here."""
        self._ports = ports
        self._logs = logs
        self._token = token
        self._environment = environment
        self._timing = timing
        self._entries: dict[str, Entry] = {}
        self._starting: set[str] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._closed = False
        self._files = PidFiles(state)
        self._files.sweep()

    def find(self, key: str) -> Process | None:
        """The process of this key if it lives and has answered Health, also while it stops."""
        entry = self._entries.get(key)
        return entry.process if entry and entry.ready else None

    def running(self) -> list[Process]:
        """Alive and not being stopped; includes those that are not ready yet."""
        return [entry.process for entry in self._entries.values() if not entry.stopping]

    def stopping(self, key: str) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.stopping

    async def start(self, key: str, backend: Installed) -> Process:
        """Return once the backend answers Health; Refused carries its last words on stderr.

        Any connection of this machine may be given a port of ours between our look at it and
        the backend's: LocalAI's range lies within the kernel's own.
        """
        for _ in range(PORTS_TRIED - 1):
            try:
                return await self._start(key, backend)
            except PortLost:
                log.warning("port lost to a stranger; trying another", extra={"key": key})
        return await self._start(key, backend)

    async def _start(self, key: str, backend: Installed) -> Process:
        self._claim(key)
        try:
            entry = await self._spawn(key, backend)
        finally:
            self._starting.discard(key)
        try:
            await self._await_ready(entry)
        except BaseException:  # a cancelled start leaves nothing behind either
            await self._kill(entry)
            raise
        entry.ready = True
        return entry.process

    async def stop(self, key: str, *, free: bool) -> Stopped:
        """Free (5 s) if wanted, SIGTERM to the group, SIGKILL after 15 s."""
        entry = self._entries.get(key)
        if entry is None:
            return Stopped(freed=False, terminated=True)
        if entry.stopping:
            raise Refused(f"{key} is already stopping")
        entry.stopping = True
        error = await self._freed(entry) if free else ""
        child.signal_group(entry.process.pid, signal.SIGTERM)
        terminated = await _happens(entry.gone, self._timing.terminate) or await self._kill(entry)
        if not terminated:
            entry.stopping = False  # it may be tried again
            error = f"process {key} (pid {entry.process.pid}) survived SIGKILL"
        return Stopped(freed=free and not error, terminated=terminated, error=error)

    async def free(self, address: str) -> None:
        """Ask whatever listens at `address` to free its memory; best effort, 5 s."""
        try:
            async with BackendClient(address, token=self._token) as client:
                await client.free(within=self._timing.free)
        except (grpc.RpcError, ValueError) as error:
            log.info("free failed", extra={"address": address, "reason": _reason(error)})

    async def close(self) -> None:
        """Stop everything; nothing is left behind, and nothing starts any more."""
        self._closed = True
        await asyncio.gather(*(self._close(entry) for entry in list(self._entries.values())))
        await asyncio.gather(*self._watchers)

    def _claim(self, key: str) -> None:
        if self._closed:
            raise Refused("the worker is shutting down")
        if self.stopping(key):
            raise Refused(f"{key} is stopping")
        if key in self._starting or key in self._entries:
            raise Refused(f"{key} is already running or starting")
        self._starting.add(key)

    async def _spawn(self, key: str, backend: Installed) -> Entry:
        port = self._free_port(key)
        mark = secrets.token_hex(16)
        env = child.environment(self._environment, token=self._token, mark=mark)
        since = datetime.now(UTC)
        try:
            handle = await child.spawn(backend.run, port=port, env=env)
        except (OSError, ValueError) as error:
            self._ports.release(port, now=_now())
            raise Refused(f"cannot start {backend.run}: {error}") from error
        process = Process(
            key=key,
            backend=backend.name,
            port=port,
            pid=handle.pid,
            directory=str(Path(backend.run).parent),
        )
        entry = Entry(process=process, handle=handle, mark=mark, since=since)
        self._entries[key] = entry
        self._files.add(key, handle.pid, mark)
        watcher = asyncio.create_task(self._watch(entry), name=f"watch {key}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return entry

    def _free_port(self, key: str) -> int:
        while True:
            port = self._ports.take(key, now=_now())
            if child.port_is_free(port):
                return port
            log.warning("port taken by a stranger", extra={"port": port})
            self._ports.avoid(port, now=_now())

    async def _await_ready(self, entry: Entry) -> None:
        deadline = time.monotonic() + self._timing.ready.total_seconds()
        async with BackendClient(entry.process.loopback, token=self._token) as client:
            while not await self._healthy(client):
                if await _happens(entry.gone, self._timing.probe_every):
                    lost = not (entry.stopping or child.port_is_free(entry.process.port))
                    raise (PortLost if lost else Refused)(self._obituary(entry, _ending(entry)))
                if time.monotonic() > deadline:
                    await self._kill(entry)  # first: what it says while dying belongs to its words
                    patience = self._timing.ready.total_seconds()
                    raise Refused(self._obituary(entry, f"was not ready within {patience:g} s"))
        if entry.stopping or entry.gone.is_set():
            raise Refused(self._obituary(entry, _ending(entry)))

    async def _healthy(self, client: BackendClient) -> bool:
        try:
            return await client.health(within=self._timing.probe)
        except grpc.RpcError:
            return False

    def _obituary(self, entry: Entry, how: str) -> str:
        words = self._logs.last_words(entry.process.key, since=entry.since)
        dead = {"key": entry.process.key, "how": how, "words": "\n".join(words)}
        log.warning("backend did not come up", extra=dead)
        told = "; its last words:\n" + "\n".join(words) if words else "; it said nothing on stderr"
        return f"backend {entry.process.backend} {how}{told}"

    async def _freed(self, entry: Entry) -> str:
        try:
            async with BackendClient(entry.process.loopback, token=self._token) as client:
                await client.free(within=self._timing.free)
        except grpc.RpcError as error:
            return f"freeing process {entry.process.key}: {_reason(error)}"
        return ""

    async def _kill(self, entry: Entry) -> bool:
        if not entry.gone.is_set():  # afterwards the number may be somebody else's
            child.signal_group(entry.process.pid, signal.SIGKILL)
        return await _happens(entry.gone, self._timing.kill)

    async def _close(self, entry: Entry) -> None:
        with contextlib.suppress(Refused):  # somebody is stopping it already
            await self.stop(entry.process.key, free=True)
        if not await _happens(entry.gone, self._timing.terminate):
            await self._kill(entry)

    async def _watch(self, entry: Entry) -> None:
        key, handle = entry.process.key, entry.handle
        assert handle.stdout is not None
        assert handle.stderr is not None
        readers = [
            asyncio.create_task(self._logs.read(key, "stdout", handle.stdout)),
            asyncio.create_task(self._logs.read(key, "stderr", handle.stderr)),
        ]
        await _exited(handle)
        # Children of a run.sh that did not `exec` would keep the port, the memory and the pipes.
        child.signal_group(entry.process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._files.forget, entry.mark)
        _, stuck = await asyncio.wait(readers, timeout=self._timing.kill.total_seconds())
        for reader in stuck:  # a pipe in the hands of somebody who also threw the mark away
            reader.cancel()
        self._ports.release(entry.process.port, now=_now())
        del self._entries[key]
        entry.gone.set()
        log.info("backend process ended", extra={"key": key, "code": handle.returncode})


async def _exited(handle: asyncio.subprocess.Process) -> None:
    # In some Pythons `wait()` also waits for the pipes, which a grandchild may hold for ever.
    while handle.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(handle.wait(), 1)


async def _happens(event: asyncio.Event, within: timedelta) -> bool:
    try:
        await asyncio.wait_for(event.wait(), within.total_seconds())
    except TimeoutError:
        return False
    return True


def _ending(entry: Entry) -> str:
    code = entry.handle.returncode
    if entry.stopping or code is None:
        return "was stopped while it started"
    if code < 0:
        return f"was ended by signal {-code} before it was ready"
    return f"exited with code {code} before it was ready"


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)


def _now() -> timedelta:
    return timedelta(seconds=time.monotonic())
