"""A worker's desk over a machine in memory, and what it said."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.commands.desk import Desk, Handle, Machine
from worker.fleet.simulated import MemoryBackends, MemoryProcesses, Nature, NoModels
from worker.models import Models
from worker.wire import subjects

NODE = "0b6f0000-0000-4000-8000-000000000000"
HOST = "10.0.0.7"


@dataclass
class Bench:
    """Commands go in by `ask`; what was published is in `said`."""

    nature: Nature = field(default_factory=Nature)
    models: Models = field(default_factory=NoModels)
    processes: MemoryProcesses = field(default_factory=MemoryProcesses)
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    left: bool = False

    def __post_init__(self) -> None:
        self.backends = MemoryBackends(self.nature, random.Random(7))
        machine = Machine(
            backends=self.backends, processes=self.processes, models=self.models, host=HOST
        )
        self.desk = Desk(machine, on_stop=self._leave)
        self.handlers: Mapping[str, Handle] = self.desk.handlers(NODE, self._publish)

    async def ask(self, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.raw(path, json.dumps(body).encode())
        assert answer is not None
        reply: dict[str, Any] = json.loads(answer)
        return reply

    async def raw(self, path: str, payload: bytes) -> bytes | None:
        return await self.handlers[path](payload)

    async def install(self, backend: str, **more: Any) -> dict[str, Any]:
        return await self.ask(subjects.INSTALL, {"backend": backend, **more})

    def running_keys(self) -> list[str]:
        return sorted(process.key for process in self.processes.running())

    async def _publish(self, subject: str, payload: bytes) -> None:
        self.said.append((subject, json.loads(payload)))

    def _leave(self) -> None:
        self.left = True
