"""One child: how it is started so that it cannot outlive us, and how its group is ended."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

LAUNCHER = str(Path(__file__).with_name("launcher.py"))

# Ours alone: a backend is foreign code and needs none of them.
KEPT_BACK = frozenset(
    {
        "LOCALAI_GRPC_AUTH_TOKEN",  # it gets the one we were given, or none
        "LOCALAI_NATS_JWT",
        "LOCALAI_NATS_USER_SEED",
        "LOCALAI_REGISTRATION_TOKEN",
        "LOCALAI_STORAGE_ACCESS_KEY",
        "LOCALAI_STORAGE_SECRET_KEY",
    }
)
MARK = "WORKER_PROCESS_MARK"  # by which a later start knows its own orphans


def environment(given: Mapping[str, str], *, token: str, mark: str) -> dict[str, str]:
    """What a backend process sees."""
    kept = {name: value for name, value in given.items() if name not in KEPT_BACK}
    kept |= {
        MARK: mark,
        "WORKER_PYTHON": sys.executable,  # for backends written in Python: has grpcio
        # Where the kernel cannot end a child with its parent (macOS), backends watch for
        # themselves: LocalAI's know this variable, and so does our reference backend.
        "LOCALAI_BACKEND_PARENT_WATCH": kept.get("LOCALAI_BACKEND_PARENT_WATCH", "true"),
    }
    if token:
        kept["LOCALAI_GRPC_AUTH_TOKEN"] = token
    return kept


async def spawn(run: str, *, port: int, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start `run.sh` in its folder, as leader of its own group."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", LAUNCHER, str(os.getpid())),
        *(run, "--addr", f"0.0.0.0:{port}"),
        cwd=Path(run).parent,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def port_is_free(port: int) -> bool:
    """Whether nobody listens there; gRPC servers would share a port silently (SO_REUSEPORT)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
