"""`manage.py up`: the whole cluster manager from one command."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from clustermgr.embedded import accounts, demo, parts, postgres
from clustermgr.embedded.display import Display
from clustermgr.embedded.nats import Nats, Tls
from clustermgr.embedded.ports import free_port
from clustermgr.embedded.processes import PidFile
from clustermgr.embedded.state import (
    AlreadyRunning,
    Secrets,
    given_in,
    open_data_dir,
    write_private,
)
from clustermgr.embedded.supervisor import PartFailed, Supervisor
from clustermgr.lib.natsauth import BadSeed, BadToken
from clustermgr.lib.natsauth.keyring import Keyring


class CannotStart(Exception):
    """A sentence for the person who typed the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the environment asks for."""

    data_dir: Path
    http_host: str
    http_port: int
    nats_host: str
    nats_port: int
    nats_tls: Tls | None
    database_url: str | None
    nats_url: str | None
    broker_url: str | None
    demo_workers: int

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Options":
        return cls(
            data_dir=Path(env.get("CLUSTER_DATA_DIR") or ".clustermgr").absolute(),
            http_host=env.get("CLUSTER_HTTP_HOST") or "127.0.0.1",
            http_port=_port(env, "CLUSTER_HTTP_PORT", 8000),
            nats_host=env.get("CLUSTER_NATS_HOST") or "127.0.0.1",
            nats_port=_port(env, "CLUSTER_NATS_PORT", 4222),
            nats_tls=_tls(env),
            database_url=given_in(env, "DATABASE_URL"),
            nats_url=given_in(env, "CLUSTER_NATS_URL"),
            broker_url=given_in(env, "CELERY_BROKER_URL"),
            demo_workers=_demo_workers(env),
        )


def main() -> int:
    display = Display()
    try:
        options = Options.from_env(os.environ)
        with open_data_dir(options.data_dir):
            return asyncio.run(_run(options, display))
    except AlreadyRunning as other:
        display.say(f"clustermgr already runs on this data directory (process {other}).")
    except (CannotStart, LookupError, OSError, RuntimeError) as problem:
        display.say(str(problem))
    except PartFailed as failure:
        display.say(f"\nCould not start: {failure}")
    return 1


async def _run(options: Options, display: Display) -> int:
    pids = PidFile(options.data_dir / "pids.json")
    for name in pids.stop_leftovers():
        display.say(f"Stopped {name}, left over from an earlier run.")
    _refuse_taken_ports(options)
    supervisor = Supervisor(display, pids)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stopping.set)
    try:
        starting = asyncio.create_task(_start(options, display, supervisor))
        stopping = asyncio.create_task(supervisor.stopping.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        display.say("\nStopping ...")
    finally:
        await supervisor.stop()
        with contextlib.suppress(FileNotFoundError):
            (options.data_dir / "run.json").unlink()
    display.say("Stopped.")
    return 0


async def _start(options: Options, display: Display, supervisor: Supervisor) -> None:
    display.say(f"clustermgr, data in {options.data_dir}")
    keys = Secrets.load(options.data_dir, os.environ)
    database_url = options.database_url or await _postgres(options, keys, supervisor)
    external = {"CLUSTER_NATS_URL": options.nats_url} if options.nats_url else None
    bus = external or await _nats(options, supervisor)
    broker_url = options.broker_url or _pgmq(database_url)
    env = parts.environment(
        os.environ,
        keys=keys,
        data_dir=options.data_dir,
        urls={
            "DATABASE_URL": database_url,
            "CELERY_BROKER_URL": broker_url,
            **bus,
            **_galleries(options),
        },
        host=options.http_host,
    )
    said = await supervisor.run_once("prepare", parts.manage("prepare"), env)
    where = parts.address(options.http_host, options.http_port)
    await asyncio.gather(*(supervisor.start(part) for part in parts.all_parts(env, options)))
    write_private(
        options.data_dir / "run.json",
        {
            "url": where,
            "nats_url": bus["CLUSTER_NATS_URL"],
            "nats_credentials": bus.get("CLUSTER_NATS_CREDENTIALS", ""),
            "database_url": database_url,
            "broker_url": broker_url,
            "admin_user": parts.admin_user(os.environ),
            "admin_password": keys.admin_password,
            "api_token": keys.api_token,
            "registration_token": keys.registration_token,
        },
    )
    guests = demo.workers(
        options.demo_workers,
        env=os.environ,
        data_dir=options.data_dir,
        url=where,
        nats_url=bus["CLUSTER_NATS_URL"],
        token=keys.registration_token,
    )
    await asyncio.gather(*(supervisor.start(guest) for guest in guests))
    password = keys.admin_password if parts.PASSWORD_WORKS in said else "as you changed it"
    display.say(
        f"\n  Ready: {where}/admin/\n"
        f"  user {parts.admin_user(os.environ)}, password {password}\n"
        f"  Ctrl-C stops everything; everything else is in {options.data_dir / 'run.json'}\n"
    )


async def _postgres(options: Options, keys: Secrets, supervisor: Supervisor) -> str:
    server = postgres.place(
        options.data_dir,
        account=accounts.unprivileged(os.environ.get("CLUSTER_POSTGRES_USER")),
        instance=keys.instance,
        port=free_port(),
        password=keys.postgres_password,
    )
    await asyncio.to_thread(server.initialise)
    await supervisor.start(parts.postgres(server))
    return server.url


async def _nats(options: Options, supervisor: Supervisor) -> dict[str, str]:
    """Start our own server and tell what its users must know."""
    home = options.data_dir / "nats"
    try:
        keys = Keyring.open(home, now=datetime.now(UTC))
    except (BadSeed, BadToken) as broken:
        raise CannotStart(f"A file in {home} is damaged: {broken}") from broken
    server = Nats(
        home=options.data_dir,
        host=options.nats_host,
        port=options.nats_port,
        keys=keys,
        tls=options.nats_tls,
    )
    server.configure()
    await supervisor.start(parts.nats(server))
    # The seeds themselves, not their files: a value beats a file, also one of somebody else's bus.
    seeds = {
        "CLUSTER_NATS_ACCOUNT_SEED": keys.account.seed,
        "CLUSTER_NATS_OPERATOR_SEED": keys.signing.seed,
    }
    return {"CLUSTER_NATS_URL": server.url, **keys.settings(), **seeds}


def _pgmq(database_url: str) -> str:
    return "pgmq://" + database_url.split("://", 1)[1]


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise CannotStart(f"{name} must be a port number, not {text!r}.")
    return int(text)


def _demo_workers(env: Mapping[str, str]) -> int:
    if given_in(env, "CLUSTER_NATS_URL"):
        return 0  # they belong to our own bus; somebody else's has its own guests
    try:
        return demo.wanted(env)
    except ValueError as nonsense:
        raise CannotStart(str(nonsense)) from None


def _galleries(options: Options) -> dict[str, str]:
    """What the demo workers can install is listed, unless somebody names other galleries."""
    if not options.demo_workers or given_in(os.environ, "CLUSTER_BACKEND_GALLERIES"):
        return {}
    return {"CLUSTER_BACKEND_GALLERIES": demo.galleries(options.data_dir)}


def _tls(env: Mapping[str, str]) -> Tls | None:
    cert, key, ca = (env.get(f"CLUSTER_NATS_SERVER_{name}") for name in ("CERT", "KEY", "CA"))
    if not (cert or key or ca):
        return None
    if not (cert and key):
        raise CannotStart("CLUSTER_NATS_SERVER_CERT and CLUSTER_NATS_SERVER_KEY need each other.")
    files = [Path(path).absolute() for path in (cert, key, ca) if path]
    for file in files:
        if not file.is_file():
            raise CannotStart(f"There is no file {file}, which NATS is to use for TLS.")
    return Tls(cert=files[0], key=files[1], ca=files[2] if ca else None)


def _refuse_taken_ports(options: Options) -> None:
    wanted = [(options.http_host, options.http_port, "CLUSTER_HTTP_PORT")]
    if not options.nats_url:
        wanted.append((options.nats_host, options.nats_port, "CLUSTER_NATS_PORT"))
    for host, port, variable in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as problem:
                raise CannotStart(
                    f"Port {port} on {host} is not free ({problem.strerror}): "
                    f"set {variable} to another one."
                ) from None


if __name__ == "__main__":
    sys.exit(main())
