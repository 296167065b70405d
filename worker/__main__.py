"""`python -m worker`: be a node of a cluster; SIGTERM and Ctrl-C leave it in good order."""

import asyncio
import contextlib
import os
import signal
import sys

from worker import logformat, node
from worker.config import BadConfig, Config
from worker.machine import Refused


def main() -> int:
    try:
        config = Config.load(sys.argv[1:], os.environ)
        logformat.set_up(level=config.log_level, as_json=config.log_format == "json")
        asyncio.run(_run(config))
    except (BadConfig, Refused) as problem:
        sys.stderr.write(f"worker: {problem}\n")
        return 1
    return 0


async def _run(config: Config) -> None:
    stopping = asyncio.Event()
    living = asyncio.create_task(node.run(config, stopping=stopping))

    def stop() -> None:
        if stopping.is_set():  # asked twice: stop the processes, and wait for nobody
            living.cancel()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await living


if __name__ == "__main__":
    sys.exit(main())
