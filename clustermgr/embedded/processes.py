"""Children that cannot outlive us, and the cleaning up after those that could."""

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def follow_parent(death_signal: int) -> None:
    """Let the kernel send us `death_signal` when our parent is gone.

    Elsewhere than on Linux nothing does this, and the next start of the supervisor cleans up by
    `stop_leftovers`.
    """
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, death_signal)


def die_with_parent(death_signal: int) -> Callable[[], None]:
    """A `preexec_fn`; it runs after the change of user, which would clear the setting."""
    parent = os.getpid()

    def arrange() -> None:
        follow_parent(death_signal)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return arrange


class PidFile:
    """Which children we started, so that a later start can find the survivors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[int, float]] = {}

    def add(self, name: str, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._known[name] = (pid, psutil.Process(pid).create_time())
            self._path.write_text(json.dumps(self._known))

    def stop_leftovers(self) -> list[str]:
        """Stop what an earlier supervisor left behind; PostgreSQL last, and politely."""
        found = [(name, process) for name, process in self._survivors() if process.is_running()]
        for name, process in found:
            if name != "postgres":
                _end(process, signal.SIGKILL)
        for name, process in found:
            if name == "postgres":
                _end(process, signal.SIGINT)
        return [name for name, _ in found]

    def _survivors(self) -> list[tuple[str, psutil.Process]]:
        try:
            recorded = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        survivors = []
        for name, (pid, created) in recorded.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                # A recycled pid has another birthday; a zombie holds nothing any more.
                if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                    survivors.append((name, process))
        return survivors


def _end(process: psutil.Process, first: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(first)
        try:
            process.wait(20)
        except psutil.TimeoutExpired:
            process.kill()
