"""Ports for servers of our own, where none of the system's outgoing connections turns up."""

import random
import socket

# Linux gives outgoing connections ports from 32768 on, macOS from 49152 on; a server that was
# promised one of those finds it taken a moment later.
LOWEST, HIGHEST = 20_000, 32_767


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many neighbours nobody uses; who asks at the same moment gets others."""
    starts = range(LOWEST, HIGHEST - count + 2)
    for first in random.sample(starts, len(starts)):
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"There are no {count} free neighbouring ports below {HIGHEST}.")


def is_free(port: int, *, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
