"""How much a backend may take, and whether the disk has it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from worker.machine import Refused

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Generous for the largest real backends, far below what an archive bomb wants."""

    index: int = 32 * MIB
    download: int = 64 * GIB
    unpacked: int = 128 * GIB
    entries: int = 500_000
    ratio: int = 100  # unpacked bytes per byte of the archive ...
    ratio_from: int = 256 * MIB  # ... counts only beyond this: small archives of zeros are harmless
    reserve: int = 64 * MIB  # stays free on the disk whatever we do


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Refuses before the disk is full: a full disk hurts more than this install."""

    reserve: int
    free: Callable[[Path], int] = free_bytes

    def check(self, directory: Path, *, needed: int) -> None:
        left = self.free(directory)
        if left - needed < self.reserve:
            raise Refused(
                f"not enough disk space: {needed + self.reserve} bytes needed in {directory}, "
                f"{left} free"
            )


def full(directory: Path) -> Refused:
    return Refused(f"the disk of {directory} is full")
