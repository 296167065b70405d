"""Installs one backend after the other under the same name until it is killed."""

import asyncio
import sys
from itertools import cycle
from pathlib import Path

from worker.backends import DiskBackends
from worker.machine import Wanted


async def swap(root: Path, uris: list[str]) -> None:
    backends = DiskBackends(root)
    for uri in cycle(uris):
        await backends.fetch(Wanted(backend="engine", uri=uri), tell=lambda _: None)
        sys.stdout.write("swapped\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(swap(Path(sys.argv[1]), sys.argv[2:]))
