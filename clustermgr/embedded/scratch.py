"""A throw-away PostgreSQL and NATS: what tests and benchmarks run against."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clustermgr.embedded import accounts, postgres
from clustermgr.embedded.nats import Nats
from clustermgr.embedded.ports import free_port
from clustermgr.embedded.processes import die_with_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where to reach the pair; the passwords are in the addresses."""

    database_url: str
    nats_url: str

    def environment(self) -> dict[str, str]:
        """The variables that point a Django process at them."""
        return {
            "DATABASE_URL": self.database_url,
            "CELERY_BROKER_URL": self.database_url.replace("postgresql://", "pgmq://"),
            "CLUSTER_NATS_URL": self.nats_url,
        }


@contextmanager
def servers(*, durable: bool = False) -> Iterator[Servers]:
    """Both, in a directory that is gone afterwards; `durable` pays for fsync as production does."""
    with ExitStack() as cleanup:
        home = cleanup.enter_context(_directory())
        log = cleanup.enter_context((home / "services.log").open("wb"))
        database = _database(home, durable=durable)
        cleanup.enter_context(_running_database(database, log))
        nats_url = cleanup.enter_context(bus())
        until(database.ready)
        yield Servers(database_url=database.url, nats_url=nats_url)


@contextmanager
def bus() -> Iterator[str]:
    """The address of a NATS of its own, for as long as the block lasts."""
    with _directory() as home, (home / "nats.log").open("wb") as log:
        server = Nats(home=home, host="127.0.0.1", port=free_port(), password=secrets.token_hex(8))
        server.configure()
        process = subprocess.Popen(
            server.command(), stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGKILL)
        )
        with _running(process, signal.SIGTERM):
            until(server.ready)
            yield server.url


def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait for a fact, as briefly as it lets us; fail loudly when it never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not come true within {seconds} s")
        time.sleep(0.02)


@contextmanager
def _directory() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="clustermgr-scratch-"))
    home.chmod(0o711)  # PostgreSQL's own account must be able to pass
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _database(parent: Path, *, durable: bool) -> postgres.Postgres:
    account = accounts.unprivileged()
    home = parent / "postgres"
    home.mkdir(mode=0o700)
    if account:
        os.chown(home, account.uid, account.gid)
    database = postgres.Postgres(
        home=home,
        binaries=postgres.binaries_for(account),
        account=account,
        port=free_port(),
        password=secrets.token_hex(8),
        durable=durable,
    )
    database.initialise()
    return database


@contextmanager
def _running_database(database: postgres.Postgres, log: IO[bytes]) -> Iterator[None]:
    identity = database.account.popen() if database.account else {}
    process = subprocess.Popen(  # type: ignore[call-overload]
        database.command(),
        cwd=database.home,
        stdout=log,
        stderr=log,
        preexec_fn=die_with_parent(database.stop_signal),
        **identity,
    )
    with _running(process, database.stop_signal):
        yield


@contextmanager
def _running(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> Iterator[None]:
    try:
        yield
    finally:
        process.send_signal(stop_signal)
        process.wait(60)
