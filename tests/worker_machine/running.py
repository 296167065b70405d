"""Backends to start, and the processes that start them."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from tests.services import free_ports
from tests.worker_machine.archives import folder
from worker.machine import Installed
from worker.processes import Ports, RealProcesses, RingLogs, Timing

PATIENT = Timing()
HASTY = Timing(
    ready=timedelta(seconds=3),
    free=timedelta(milliseconds=300),
    terminate=timedelta(milliseconds=300),
)
REPOSITORY = Path(__file__).resolve().parents[2]
REFERENCE = f"""#!/bin/sh
export PYTHONPATH={REPOSITORY}
exec {sys.executable} -m worker.reference "$@"
"""


def backend(home: Path, script: str, *, name: str = "engine") -> Installed:
    run = folder(home / name, {"run.sh": script.encode()}) / "run.sh"
    run.chmod(0o755)
    return Installed(name=name, run=str(run))


def reference(home: Path) -> Installed:
    """The reference backend, from the working tree instead of an archive."""
    return backend(home, REFERENCE, name="reference")


@asynccontextmanager
async def processes(
    home: Path,
    *,
    knobs: dict[str, str] | None = None,
    count: int = 20,
    **options: Any,
) -> AsyncIterator[RealProcesses]:
    """A worker's processes; all of them are gone afterwards, whatever the test did."""
    first = options.pop("first", None) or free_ports(count)
    made = RealProcesses(
        ports=Ports(first, first + count - 1),
        logs=options.pop("logs", None) or RingLogs(),
        state=home / "state",
        environment={**os.environ, **(knobs or {})},
        **options,
    )
    try:
        yield made
    finally:
        await made.close()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
