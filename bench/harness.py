"""What benchmarks share: throw-away servers with Django on them, a stopwatch, a table."""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event

import django
from django.core.management import call_command

from clustermgr.embedded import scratch

ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
    "DJANGO_SECRET_KEY": "benchmarks-only-" + "x" * 50,
    "DJANGO_ALLOWED_HOSTS": "localhost",
    "CLUSTER_HTTPS": "false",
    "CLUSTER_LOG_FORMAT": "text",
    "CLUSTER_LOG_LEVEL": "WARNING",
}


@contextmanager
def cluster() -> Iterator[None]:
    """Django on a migrated database of its own, which pays for fsync as production does."""
    with scratch.servers(durable=True) as servers:
        os.environ.update(ENVIRONMENT | servers.environment())
        django.setup()
        call_command("migrate", verbosity=0)
        yield


@contextmanager
def aside(work: Callable[[str, Event], None], url: str) -> Iterator[None]:
    """`work` in a process of its own, from when it says that it is ready."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=work, args=(url, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("the process aside did not start")
        yield
    finally:
        process.kill()
        process.join()


def milliseconds(
    work: Callable[[], object], *, before: Callable[[], object] = lambda: None, rounds: int = 7
) -> float:
    """The median time of `work`; `before` restores the world ahead of each round, unmeasured."""
    times = []
    for _ in range(rounds):
        before()
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns, the first to the left and the figures to the right."""
    texts = [[_text(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *rest in texts:
        figures = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *figures]))


def _text(cell: object) -> str:
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)
