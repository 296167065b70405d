"""`python -m worker.fleet --nodes 1000 --register-to URL`: a fleet in one process.

The token and the address of NATS may come by LOCALAI_REGISTRATION_TOKEN and LOCALAI_NATS_URL,
which keeps them off the command line.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from worker import config, logformat
from worker.fleet import chaos
from worker.fleet.control import Control, served
from worker.fleet.nodes import Fleet, Plan
from worker.fleet.simulated import Nature
from worker.link import Address
from worker.manager import Manager
from worker.sizes import parse_size

CONNECTIONS = 64  # to the manager, for all nodes together
LOOK_EVERY = 2.0  # seconds


def share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError("must be between 0 and 1")
    return number


def arguments() -> argparse.ArgumentParser:
    def knob(name: str, read: Callable[[str], Any], default: Any, says: str) -> None:
        def reading(text: str) -> Any:
            try:
                return read(text)
            except ValueError as error:
                raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

        parser.add_argument(name, type=reading, default=default, help=says, metavar="...")

    parser = argparse.ArgumentParser(
        prog="python -m worker.fleet", description="A simulated fleet."
    )
    env = os.environ.get
    knob("--nodes", config.whole, 0, "how many to start with")
    knob("--register-to", config.web_address, env("LOCALAI_REGISTER_TO"), "the manager")
    knob("--nats-url", config.nats_address, env("LOCALAI_NATS_URL"), "where commands come from")
    knob("--token", str, env("LOCALAI_REGISTRATION_TOKEN", ""), "lets the nodes in")
    knob("--name-prefix", str, "sim", "what names begin with")
    knob("--heartbeat-interval", config.duration, timedelta(seconds=10), "such as 10s")
    knob("--link-speed", parse_size, 50_000_000, "bytes per second of a download; 0: at once")
    knob("--backend-size", parse_size, 200_000_000, "bytes of every backend")
    knob("--fail-rate", share, 0.0, "share of installs that fail half-way")
    knob("--silent-rate", share, 0.0, "share of nodes that fall silent once they have joined")
    knob("--chaos", config.duration, None, "let something happen this often")
    knob("--seed", config.whole, 0, "the same seed, the same chances")
    knob("--state-file", Path, None, "write here how to control the fleet")
    knob("--as-long-as", Path, None, "end when this file is gone")
    knob("--log-level", config.one_of("debug", "info", "warning", "error"), "warning", "how much")
    return parser


async def run(options: argparse.Namespace) -> None:
    plan = Plan(
        nats=Address(url=options.nats_url),
        token=options.token,
        prefix=options.name_prefix,
        heartbeat_every=options.heartbeat_interval,
        nature=Nature(
            link_speed=options.link_speed,
            backend_size=options.backend_size,
            fail_rate=options.fail_rate,
        ),
        seed=options.seed,
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with contextlib.AsyncExitStack() as cleanup:
        session = await cleanup.enter_async_context(aiohttp.ClientSession(connector=connector))
        fleet = Fleet(plan, Manager(session, options.register_to, options.token))
        cleanup.push_async_callback(fleet.close)
        control = Control(fleet, on_empty=stopping.set)
        await cleanup.enter_async_context(served(control, options.state_file))
        tasks = [asyncio.create_task(_play(fleet, options))]
        if options.as_long_as:
            tasks.append(asyncio.create_task(_watch(options.as_long_as, stopping)))
        await stopping.wait()
        for task in tasks:
            task.cancel()


async def _play(fleet: Fleet, options: argparse.Namespace) -> None:
    if options.nodes:
        await fleet.add(options.nodes)
        sys.stdout.write(f"{options.nodes} nodes have joined\n")
        sys.stdout.flush()
    await chaos.silence_share(fleet, options.silent_rate)
    if options.chaos:
        await chaos.keep_troubling(fleet, every=options.chaos.total_seconds())


async def _watch(path: Path, stopping: asyncio.Event) -> None:
    while path.exists():
        await asyncio.sleep(LOOK_EVERY)
    stopping.set()


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    for name in ("register_to", "nats_url"):
        if not getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} is required")
    _allow_many_sockets()
    logformat.set_up(level=options.log_level, as_json=False)
    uvloop.run(run(options))
    return 0


def _allow_many_sockets() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
