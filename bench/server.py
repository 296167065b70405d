"""The real web process on a port of its own, and a client that costs as little as it can."""

import asyncio
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from clustermgr.embedded.parts import UVICORN
from clustermgr.embedded.ports import free_port
from clustermgr.embedded.scratch import until


@dataclass(frozen=True, slots=True)
class Web:
    """A running server."""

    port: int

    def cpu_seconds(self) -> float:
        """Of everything this benchmark started: the server, PostgreSQL, NATS; not the client."""
        return sum(map(_cpu, psutil.Process().children(recursive=True)))


@contextmanager
def web(*, env: dict[str, str] | None = None) -> Iterator[Web]:
    """uvicorn as `manage.py up` starts it."""
    port = free_port()
    command = [*UVICORN, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env={**os.environ, **(env or {})})
    try:
        until(lambda: _answers(port), seconds=30)
        yield Web(port)
    finally:
        process.terminate()
        process.wait(20)


def request(method: str, path: str, *, token: str = "", body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


class Storm:
    """Keep-alive connections that send prepared requests as fast as answers come, or by rate."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.statuses: dict[int, int] = {}
        self.latencies: list[float] = []

    async def run(
        self,
        requests: Sequence[bytes],
        *,
        connections: int,
        seconds: float | None = None,
        per_second: float | None = None,
    ) -> float:
        """Send them round robin; return the requests per second that were answered."""
        began = time.perf_counter()
        ends = began + seconds if seconds else None
        pace = connections / per_second if per_second else 0.0
        shares = [requests[start::connections] for start in range(connections)]
        await asyncio.gather(*(self._client(share, ends, pace) for share in shares))
        return sum(self.statuses.values()) / (time.perf_counter() - began)

    async def _client(self, share: Sequence[bytes], ends: float | None, pace: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        due = time.perf_counter()
        try:
            while True:
                for message in share:
                    if ends and time.perf_counter() > ends:
                        return
                    if pace:
                        due += pace
                        await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    await self._ask(reader, writer, message)
                if ends is None:
                    return
        finally:
            writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
    ) -> None:
        began = time.perf_counter()
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]
        if length:
            await reader.readexactly(int(length))
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies.append(time.perf_counter() - began)

    def percentile(self, share: float) -> float:
        """Milliseconds within which that share was answered."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
