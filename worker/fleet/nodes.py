"""Many simulated nodes in one process: the agent of real ones over machines in memory."""

import asyncio
import itertools
import logging
import random
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from worker.agent import Agent, Identity
from worker.commands.desk import Machine
from worker.fleet.simulated import MemoryBackends, MemoryProcesses, Nature, NoModels
from worker.link import Address
from worker.machine import Refused
from worker.manager import Manager
from worker.wire.http import Readings, Registration

log = logging.getLogger(__name__)

GIB = 2**30
# (graphics memory, vendor, which builds of a backend fit) of machines one meets
KINDS = (
    (80, "nvidia", "nvidia-cuda-12"),
    (48, "nvidia", "nvidia-cuda-12"),
    (24, "nvidia", "nvidia-cuda-12"),
    (16, "amd", "amd"),
    (0, "", "default"),
)
JOIN_AT_ONCE = 48  # requests wait for a connection, and their patience is ten seconds
HOST = "127.0.0.1"


class State(StrEnum):
    RUNNING = "running"
    SILENT = "silent"  # neither beats nor answers
    CRASHED = "crashed"  # gone without a word, and its processes with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all nodes of a fleet share."""

    nats: Address
    token: str = field(default="", repr=False)
    prefix: str = "sim"
    heartbeat_every: timedelta = timedelta(seconds=10)
    nature: Nature = field(default_factory=Nature)
    seed: int = 0


@dataclass(eq=False, slots=True)
class Node:
    name: str
    agent: Agent
    task: asyncio.Task[None]
    state: State = State.RUNNING


class Fleet:
    """Nodes by name. Chance is seeded: the same commands meet the same fleet."""

    def __init__(self, plan: Plan, manager: Manager) -> None:
        self._plan = plan
        self._manager = manager
        self.chance = random.Random(plan.seed)
        self._numbers = itertools.count(1)
        self._nodes: dict[str, Node] = {}
        self._gate = asyncio.Semaphore(JOIN_AT_ONCE)

    def listed(self) -> list[Node]:
        return list(self._nodes.values())

    async def add(self, count: int) -> list[str]:
        """Start so many nodes; return their names once each has registered."""
        names = list(itertools.islice(self._fresh_names(), count))
        await asyncio.gather(*(self._start(name) for name in names))
        return names

    def silence(self, names: Iterable[str]) -> None:
        for node in self._named(names):
            if node.state is State.RUNNING:
                node.agent.hang()
                node.state = State.SILENT

    async def wake(self, names: Iterable[str]) -> None:
        """Let silent ones speak again; start crashed ones anew, as another process."""
        for node in self._named(names):
            if node.state is State.SILENT:
                node.agent.recover()
                node.state = State.RUNNING
            elif node.state is State.CRASHED:
                await self._start(node.name)

    async def crash(self, names: Iterable[str]) -> None:
        for node in self._named(names):
            await _kill(node)
            node.state = State.CRASHED

    async def remove(self, names: Iterable[str]) -> None:
        """Let them leave in good order; a crashed or silent one just disappears."""
        await asyncio.gather(*(self._remove(node) for node in self._named(names)))

    async def close(self) -> None:
        """End all of them at once, without a word to anybody."""
        await asyncio.gather(*(_kill(node) for node in self._nodes.values()))
        self._nodes.clear()

    def some(self, count: int, *, among: Callable[[Node], bool]) -> list[str]:
        """At most so many of them, by chance."""
        names = [node.name for node in self._nodes.values() if among(node)]
        return self.chance.sample(names, min(count, len(names)))

    async def _remove(self, node: Node) -> None:
        if node.state is State.RUNNING:
            node.agent.stopping.set()
            with suppress(asyncio.CancelledError):
                await node.task
        await _kill(node)
        self._nodes.pop(node.name, None)

    async def _start(self, name: str) -> None:
        async with self._gate:
            agent = self._agent(name)
            task = asyncio.create_task(agent.run())
            task.add_done_callback(_tell_crash)
            self._nodes[name] = Node(name, agent, task)
            joined = asyncio.create_task(agent.joined.wait())
            await asyncio.wait({task, joined}, return_when=asyncio.FIRST_COMPLETED)
            joined.cancel()

    def _agent(self, name: str) -> Agent:
        plan = self._plan
        memory, vendor, capability = self.chance.choice(KINDS)
        has = Readings(
            total_vram=memory * GIB,
            available_vram=memory * GIB if memory else None,
            total_ram=128 * GIB,
            available_ram=96 * GIB,
            total_disk=2000 * GIB,
            available_disk=self.chance.randrange(200, 1900) * GIB,
        )

        async def readings() -> Readings:
            return has

        registration = Registration(
            name=name,
            # An address of its own, though nobody listens there: addresses tell machines apart
            address=f"{HOST}:{20_000 + len(self._nodes) % 40_000}",
            http_address=f"{HOST}:{19_999}",
            boot_id=uuid.uuid4().hex,
            token=plan.token,
            gpu_vendor=vendor,
            capability=capability,
            max_replicas_per_model=2,
            labels={"simulated": "true"},
        )
        return Agent(
            Identity(
                registration=registration, nats=plan.nats, heartbeat_every=plan.heartbeat_every
            ),
            manager=self._manager,
            machine=Machine(
                backends=MemoryBackends(plan.nature, self.chance),
                processes=MemoryProcesses(),
                models=NoModels(),
                host=HOST,
            ),
            readings=readings,
        )

    def _fresh_names(self) -> Iterable[str]:
        for number in self._numbers:
            name = f"{self._plan.prefix}-{number:04}"
            if name not in self._nodes:
                yield name

    def _named(self, names: Iterable[str]) -> list[Node]:
        wanted = list(names)
        if unknown := [name for name in wanted if name not in self._nodes]:
            raise Refused(f"There is no simulated node {', '.join(unknown)}.")
        return [self._nodes[name] for name in wanted]


async def _kill(node: Node) -> None:
    node.task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await node.task


def _tell_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("a simulated node died of a bug", exc_info=error)
