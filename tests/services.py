"""Starts one real PostgreSQL and one real NATS for the whole test run, before Django loads."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clustermgr.embedded import accounts, postgres
from clustermgr.embedded.nats import Nats

ENVIRONMENT = {
    "DJANGO_SECRET_KEY": "tests-only-" + "x" * 50,
    "DJANGO_ALLOWED_HOSTS": "testserver,localhost,127.0.0.1",
    "CLUSTER_HTTPS": "false",
    "CLUSTER_LOG_FORMAT": "text",
    "CLUSTER_REGISTRATION_TOKEN": "test-registration-token",
    "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # Playwright's sync API runs a loop in the test thread
}


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    # xdist's workers inherit the environment of the process that started the servers.
    if "CLUSTER_TEST_SERVICES" not in os.environ:
        os.environ.update(ENVIRONMENT)
        _start()
    yield


def pytest_unconfigure() -> None:
    while _RUNNING:
        process = _RUNNING.pop()
        process.terminate()
        process.wait(10)
    if _SCRATCH:
        shutil.rmtree(_SCRATCH.pop(), ignore_errors=True)


_RUNNING: list[subprocess.Popen[bytes]] = []
_SCRATCH: list[Path] = []


def _start() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="clustermgr-tests-"))
    scratch.chmod(0o711)
    _SCRATCH.append(scratch)
    account = accounts.unprivileged()
    home = scratch / "postgres"
    home.mkdir(mode=0o700)
    if account:
        os.chown(home, account.uid, account.gid)
    database = postgres.Postgres(
        home=home,
        binaries=postgres.binaries_for(account),
        account=account,
        port=free_port(),
        password=secrets.token_hex(8),
        durable=False,
    )
    database.initialise()
    log = (scratch / "services.log").open("wb")
    identity = account.popen() if account else {}
    _RUNNING.append(
        subprocess.Popen(  # type: ignore[call-overload]
            database.command(), cwd=home, stdout=log, stderr=log, **identity
        )
    )
    bus = Nats(home=scratch, host="127.0.0.1", port=free_port(), password=secrets.token_hex(8))
    bus.configure()
    _RUNNING.append(subprocess.Popen(bus.command(), stdout=log, stderr=log))
    until(database.ready)
    until(bus.ready)
    os.environ["DATABASE_URL"] = database.url
    os.environ["CELERY_BROKER_URL"] = database.url.replace("postgresql://", "pgmq://")
    os.environ["CLUSTER_NATS_URL"] = bus.url
    os.environ["CLUSTER_TEST_SERVICES"] = "running"


def until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait for a fact, as briefly as it lets us; fail loudly when it never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not come true within {seconds} s")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
