"""An agent with a machine in memory, living beside a test."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import aiohttp
from django.conf import settings

from worker.agent import Agent, Identity
from worker.commands.desk import Machine
from worker.fleet.simulated import MemoryBackends, MemoryProcesses, Nature, NoModels
from worker.link import Address
from worker.manager import Manager
from worker.wire.http import Readings, Registration

GIB = 2**30
HAS = Readings(
    total_vram=24 * GIB,
    available_vram=20 * GIB,
    total_ram=64 * GIB,
    available_ram=48 * GIB,
    total_disk=1000 * GIB,
    available_disk=800 * GIB,
)


async def readings() -> Readings:
    return HAS


@asynccontextmanager
async def living(
    manager_url: str,
    *,
    name: str = "gpu-a",
    token: str = "s3cret",
    nature: Nature | None = None,
    **identity: Any,
) -> AsyncIterator[Agent]:
    """The agent, running; afterwards it is gone, in whichever order it left."""
    wanted: dict[str, Any] = {
        "nats": Address(url=settings.CLUSTER.nats_url),
        "heartbeat_every": timedelta(milliseconds=50),
        **identity,
    }
    registration = Registration(
        name=name,
        address="10.0.0.7:50051",
        http_address="10.0.0.7:50050",
        boot_id="boot-1",
        token=token,
        gpu_vendor="nvidia",
        capability="nvidia-cuda-12",
        max_replicas_per_model=2,
        labels={"tier": "fast"},
    )
    machine = Machine(
        backends=MemoryBackends(nature or Nature(), random.Random(7)),
        processes=MemoryProcesses(),
        models=NoModels(),
        host="10.0.0.7",
    )
    async with aiohttp.ClientSession() as session:
        agent = Agent(
            Identity(registration=registration, **wanted),
            manager=Manager(session, manager_url, token),
            machine=machine,
            readings=readings,
        )
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            agent.stopping.set()
            with suppress(asyncio.CancelledError):
                await task
