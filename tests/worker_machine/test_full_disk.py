import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worker_machine.archives import GOOD, folder, tar
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from tests.worker_machine.web import Site, serving
from worker.backends import Limits
from worker.machine import Refused, Wanted

LARGE = {**GOOD, "weights.bin": bytes(range(256)) * 2**14}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write more into one file, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # Python's own
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["folder", "archive", "address"])
@in_loop
async def test_too_little_room_is_known_before_anything_is_written(
    opened: Opened, tmp_path: Path, root: Path, kind: str
) -> None:
    packed = tar(LARGE, mode="w:")
    (tmp_path / "x.tar").write_bytes(packed)
    async with serving(Site(files={"/x.tar": packed})) as site:
        uri = {
            "folder": str(folder(tmp_path / "source", LARGE)),
            "archive": str(tmp_path / "x.tar"),
            "address": f"{site.url}/x.tar",
        }[kind]
        limits = Limits(reserve=1000)
        backends = opened(limits=limits, free=lambda _: len(packed) // 2)
        with pytest.raises(Refused, match="not enough disk space"):
            await backends.fetch(Wanted(backend="engine", uri=uri), tell=lambda _: None)
    assert backends.listed() == []
    assert list((root / ".incoming").iterdir()) == []
    assert list((root / ".downloads").glob("*.part")) == []


@in_loop
async def test_room_that_vanishes_while_unpacking_is_noticed(
    opened: Opened, tmp_path: Path, root: Path
) -> None:
    packed = tar({**GOOD, "weights.bin": bytes(80 * 2**20)})
    (tmp_path / "x.tgz").write_bytes(packed)
    left = iter([2**40, 0, 0, 0, 0])
    backends = opened(free=lambda _: next(left))
    with pytest.raises(Refused, match="not enough disk space"):
        await backends.fetch(
            Wanted(backend="engine", uri=str(tmp_path / "x.tgz")), tell=lambda _: None
        )
    assert list((root / ".incoming").iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "archive", "address"])
@in_loop
async def test_a_write_that_fails_leaves_the_installed_backend_untouched(
    opened: Opened, tmp_path: Path, root: Path, kind: str
) -> None:
    packed = tar(LARGE, mode="w:")
    (tmp_path / "x.tar").write_bytes(packed)
    backends = opened()
    source = str(folder(tmp_path / "source", LARGE))
    before = await backends.fetch(Wanted(backend="engine", uri=source), tell=lambda _: None)
    async with serving(Site(files={"/x.tar": packed})) as site:
        uri = {
            "folder": source,
            "archive": str(tmp_path / "x.tar"),
            "address": f"{site.url}/x.tar",
        }[kind]
        with files_of_at_most(2**20), pytest.raises(Refused, match="is full"):
            await backends.fetch(Wanted(backend="engine", uri=uri), tell=lambda _: None)
        assert backends.find("engine") == before
        assert Path(before.run).exists()
        assert list((root / ".incoming").iterdir()) == []
        assert await backends.fetch(Wanted(backend="engine", uri=uri), tell=lambda _: None)
