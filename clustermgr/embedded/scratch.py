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
        home = Path(tempfile.mkdtemp(prefix="clustermgr-scratch-"))
        cleanup.callback(shutil.rmtree, home, ignore_errors=True)
        home.chmod(0o711)  # PostgreSQL's own account must be able to pass
        log = cleanup.enter_context((home / "services.log").open("wb"))
        database = _database(home, durable=durable)
        cleanup.enter_context(_running_database(database, log))
        bus = Nats(home=home, host="127.0.0.1", port=free_port(), password=secrets.token_hex(8))
        bus.configure()
        process = subprocess.Popen(
            bus.command(), stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGKILL)
        )
        cleanup.enter_context(_running(process, signal.SIGTERM))
        until(database.ready)
        until(bus.ready)
        yield Servers(database_url=database.url, nats_url=bus.url)


def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait for a fact, as briefly as it lets us; fail loudly when it never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not come true within {seconds} s")
        time.sleep(0.02)


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
        process.wait(10)
