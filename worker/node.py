"""Puts a real node together: this machine's hardware, disk, processes, and the agent over them."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from worker import builtin, hardware
from worker.agent import Agent, Identity
from worker.backends import DiskBackends
from worker.commands.desk import Machine
from worker.config import BadConfig, Config
from worker.hardware import Gpu, Hardware
from worker.http import Pages
from worker.link import Address
from worker.manager import Manager
from worker.models import ModelFiles
from worker.processes import Ports, RealProcesses, RingLogs
from worker.wire.credentials import Credentials
from worker.wire.http import Registration

log = logging.getLogger(__name__)

CLOSING = 5.0  # seconds for HTTP clients to go


async def run(config: Config, *, stopping: asyncio.Event) -> None:
    """Be a node until `stopping` is set or the manager sends us home."""
    machine_facts = Hardware(disk=config.models, pretend_vram=config.pretend_vram)
    gpu = await machine_facts.gpu()
    logs = RingLogs()
    async with contextlib.AsyncExitStack() as cleanup:
        backends = _backends(config, gpu)
        cleanup.callback(backends.close)
        processes = RealProcesses(
            ports=Ports(config.base_port, config.top_port),
            logs=logs,
            state=config.state_dir / "processes",
            token=config.registration_token,
        )
        # trust_env: proxies are configured in the environment, as for LocalAI's worker
        session = await cleanup.enter_async_context(aiohttp.ClientSession(trust_env=True))
        agent = Agent(
            _identity(config, gpu),
            manager=Manager(session, config.register_to, config.registration_token),
            machine=Machine(
                backends=backends,
                processes=processes,
                models=ModelFiles(config.models),
                host=config.advertised_host,
            ),
            readings=machine_facts.readings,
            stopping=stopping,
        )
        pages = Pages(logs=logs, token=config.registration_token, why_not_ready=agent.why_not_ready)
        await cleanup.enter_async_context(_served(pages, config))
        await agent.run()


def _backends(config: Config, gpu: Gpu) -> DiskBackends:
    return DiskBackends(
        config.backends,
        system_root=config.backends_system_path,
        # Without a gallery a fresh worker could install nothing: it brings one of its own
        galleries=config.backend_galleries or builtin.galleries(config.state_dir / "gallery"),
        capability=gpu.capability,
        download_rate=config.download_rate,
    )


def _identity(config: Config, gpu: Gpu) -> Identity:
    own = Credentials(jwt=config.nats_jwt, seed=config.nats_user_seed)
    return Identity(
        registration=Registration(
            name=config.node_name,
            address=config.advertised,
            http_address=config.http_advertised,
            boot_id=uuid.uuid4().hex,
            token=config.registration_token,
            gpu_vendor=gpu.vendor,
            gpu_compute_capability=gpu.compute_capability,
            capability=gpu.capability,
            arch=hardware.architecture(),
            os=hardware.system(),
            max_replicas_per_model=config.max_replicas_per_model,
            vram_budget=config.vram_budget,
            labels=config.node_labels,
        ),
        nats=Address(
            url=config.nats_url,
            ca=config.nats_tls_ca,
            cert=config.nats_tls_cert,
            key=config.nats_tls_key,
        ),
        heartbeat_every=config.heartbeat_interval,
        needs_credentials=config.nats_require_auth or config.distributed_require_auth,
        own_credentials=own if config.nats_jwt else None,
    )


@contextlib.asynccontextmanager
async def _served(pages: Pages, config: Config) -> AsyncIterator[None]:
    """Probes and logs, before anybody is told of us: a port that is taken is found out here."""
    runner = web.AppRunner(pages.application(), access_log=None, shutdown_timeout=CLOSING)
    await runner.setup()
    host, port = config.http_bind
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise BadConfig(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
        log.info("serving probes and logs", extra={"port": port})
        yield
    finally:
        await runner.cleanup()
