"""What the machine has: memory, disk, graphics cards. What cannot be told is left out."""

import asyncio
import contextlib
import logging
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pynvml

from worker.wire.http import Readings

log = logging.getLogger(__name__)

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Go calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """All cards of one vendor, taken together. Memory 0: the card shares the machine's."""

    vendor: str = ""
    compute_capability: str = ""
    capability: str = "default"  # which builds of a backend fit
    total: int = 0
    available: int = 0
    unified: bool = False


NONE = Gpu()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine we run on; `pretend_vram` makes a laptop look like a GPU box, for demos."""

    disk: Path  # any path on the disk that models are on
    pretend_vram: int = 0

    async def gpu(self) -> Gpu:
        return await asyncio.to_thread(self._gpu)

    async def readings(self) -> Readings:
        """What is there and free right now; off the loop, as a disk or a driver may hang."""
        return await asyncio.to_thread(self._readings)

    def _gpu(self) -> Gpu:
        if self.pretend_vram:
            return Gpu(
                vendor="nvidia",
                capability="nvidia-cuda-12",
                total=self.pretend_vram,
                available=max(self.pretend_vram - _held_by_backends(), 0),
            )
        return _nvidia() or _apple() or NONE

    def _readings(self) -> Readings:
        gpu, memory = self._gpu(), psutil.virtual_memory()
        disk = _usage(self.disk)
        shared = gpu.unified
        total, available = (
            (memory.total, memory.available) if shared else (gpu.total, gpu.available)
        )
        return Readings(
            total_vram=total,
            available_vram=available if total else None,
            total_ram=memory.total,
            available_ram=memory.available,
            total_disk=disk[0],
            available_disk=disk[1],
        )


def architecture() -> str:
    machine = platform.machine().lower()
    return ARCHITECTURES.get(machine, machine)


def system() -> str:
    return platform.system().lower()


def _usage(path: Path) -> tuple[int, int]:
    """Total and free bytes; nothing when the disk cannot be asked."""
    existing = next((place for place in (path, *path.absolute().parents) if place.exists()), None)
    try:
        usage = psutil.disk_usage(str(existing))
    except OSError as error:
        log.warning("disk cannot be read", extra={"path": str(path), "reason": str(error)})
        return 0, 0
    return usage.total, usage.free


def _held_by_backends() -> int:
    """Memory of the processes below us: what they would hold on the card we pretend to have."""
    held = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended while we looked
            held += process.memory_info().rss
    return held


def _nvidia() -> Gpu | None:
    """What NVML tells; None without a driver."""
    try:
        with _nvml():
            cards = [
                pynvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(pynvml.nvmlDeviceGetCount())
            ]
            return _added(cards) if cards else None
    except pynvml.NVMLError as error:
        log.debug("no nvidia driver", extra={"reason": str(error)})
        return None


@contextlib.contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _added(cards: list[object]) -> Gpu:
    total = available = 0
    for card in cards:
        with contextlib.suppress(pynvml.NVMLError):  # Jetson, GB10: there is no memory of its own
            memory = pynvml.nvmlDeviceGetMemoryInfo(card)
            total += int(memory.total)
            available += int(memory.free)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(cards[0])
    cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2()) // 1000
    family = "nvidia-l4t-cuda" if Path("/etc/nv_tegra_release").exists() else "nvidia-cuda"
    return Gpu(
        vendor="nvidia",
        compute_capability=f"{major}.{minor}",
        capability=f"{family}-{min(max(cuda, 12), 13)}",
        total=total,
        available=available,
        unified=total == 0,
    )


def _apple() -> Gpu | None:
    if (system(), architecture()) != ("darwin", "arm64"):
        return None
    return Gpu(vendor="apple", capability="metal", unified=True)
