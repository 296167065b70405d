"""A machine without files and processes: installs take the time of their bytes, and may fail."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from worker.machine import Installed, Process, Refused, Step, Stopped, Tell, Wanted

STEPS = 20  # of a simulated download
START = 0.05  # seconds until a simulated process answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """What kind of machine it is, the same for all of a fleet."""

    link_speed: float = 0.0  # bytes per second; 0: installs take no time
    backend_size: int = 200 * 2**20  # bytes
    fail_rate: float = 0.0  # share of installs that fail half-way


@dataclass(slots=True)
class MemoryBackends:
    """The disk of a simulated machine; each fetch makes a new version in a folder of its own."""

    nature: Nature
    chance: random.Random
    _kept: dict[str, Installed] = field(default_factory=dict)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def find(self, name: str) -> Installed | None:
        entry = name.rpartition("@")[2]
        named = self._kept.get(entry)
        return named or next((one for one in self._kept.values() if one.alias == entry), None)

    def listed(self) -> list[Installed]:
        return list(self._kept.values())

    async def fetch(self, wanted: Wanted, *, tell: Tell) -> Installed:
        await self._download(f"{wanted.backend}.tar.gz", tell)
        name = wanted.name or wanted.backend.rpartition("@")[2]
        version = next(self._versions)
        fresh = Installed(
            name=name,
            run=f"/simulated/{name}-{version}/run.sh",
            alias=wanted.alias,
            version=f"1.{version}.0",
            digest=f"sha256:{self.chance.getrandbits(256):064x}",
            uri=wanted.uri,
            gallery_url=wanted.galleries[0].url if wanted.galleries else "",
            installed_at=datetime.now(UTC).isoformat(),
        )
        self._kept[name] = fresh
        return fresh

    async def delete(self, name: str) -> None:
        known = self.find(name)
        if known is None:
            raise Refused(f"backend {name!r} not found")
        del self._kept[known.name]

    async def _download(self, file_name: str, tell: Tell) -> None:
        size = self.nature.backend_size
        pause = size / STEPS / self.nature.link_speed if self.nature.link_speed else 0.0
        fails_at = self.chance.randrange(1, STEPS) if self._unlucky() else STEPS + 1
        step = Step(phase="downloading", file_name=file_name, total=size)
        for number in range(1, STEPS + 1):
            await asyncio.sleep(pause)
            if number == fails_at:
                raise Refused("download failed: connection reset by peer (simulated)")
            tell(replace(step, current=size * number // STEPS))
        tell(replace(step, phase="extracting", current=size))

    def _unlucky(self) -> bool:
        return self.chance.random() < self.nature.fail_rate


@dataclass(slots=True)
class MemoryProcesses:
    """The process table of a simulated machine."""

    base_port: int = 50_051
    freed: deque[str] = field(default_factory=lambda: deque(maxlen=16))
    _running: dict[str, Process] = field(default_factory=dict)
    _pids: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    def find(self, key: str) -> Process | None:
        return self._running.get(key)

    def running(self) -> list[Process]:
        return list(self._running.values())

    def stopping(self, key: str) -> bool:
        return False

    async def start(self, key: str, backend: Installed) -> Process:
        await asyncio.sleep(START)
        taken = {process.port for process in self._running.values()}
        port = next(port for port in itertools.count(self.base_port) if port not in taken)
        self._running[key] = Process(
            key=key,
            backend=backend.name,
            port=port,
            pid=next(self._pids),
            directory=backend.run.rpartition("/")[0],
        )
        return self._running[key]

    async def stop(self, key: str, *, free: bool) -> Stopped:
        gone = self._running.pop(key, None)
        return Stopped(freed=free and gone is not None, terminated=True)

    async def free(self, address: str) -> None:
        self.freed.append(address)

    async def close(self) -> None:
        self._running.clear()


class NoModels:
    """A simulated machine has no model files; there is nothing to remove."""

    async def delete(self, name: str) -> None:
        if not name.strip():
            raise Refused("model name is empty")
