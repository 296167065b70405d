import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.worker_machine.archives import folder
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from worker.machine import Refused, Step, Wanted

VERSIONS = {
    name: {"run.sh": b"#!/bin/sh\n", **{f"part{n}": name.encode() * 50_000 for n in range(8)}}
    for name in ("old", "new")
}


def parts(run: str) -> set[bytes]:
    """The versions of which there are files; a whole backend has one."""
    files = list(Path(run).parent.glob("part*"))
    assert len(files) == 8
    return {file.read_bytes()[:3] for file in files}


def test_killed_at_any_moment_there_is_one_whole_backend(
    opened: Opened, root: Path, tmp_path: Path
) -> None:
    sources = [str(folder(tmp_path / name, files)) for name, files in VERSIONS.items()]
    command = [sys.executable, "-m", "tests.worker_machine.swapper", str(root), *sources]
    moments = Random(7)
    for _ in range(8):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
            assert swapper.stdout is not None
            for _ in range(moments.randint(1, 4)):
                assert swapper.stdout.readline() == b"swapped\n"
            with pytest.raises(subprocess.TimeoutExpired):
                swapper.wait(moments.uniform(0, 0.03))
            swapper.kill()
        backends = opened()
        [found] = backends.listed()
        assert parts(found.run) in ({b"old"}, {b"new"})
        assert [path.name for path in (root / ".versions").iterdir()] == [
            Path(found.run).parent.name
        ]
        assert list((root / ".incoming").iterdir()) == []
        backends.close()


@in_loop
async def test_a_replaced_backend_lies_elsewhere_so_its_processes_are_known_to_be_obsolete(
    opened: Opened, tmp_path: Path
) -> None:
    backends = opened()
    wanted = Wanted(backend="engine", uri=str(folder(tmp_path / "old", VERSIONS["old"])))
    before = await backends.fetch(wanted, tell=lambda _: None)
    after = await backends.fetch(wanted, tell=lambda _: None)
    assert Path(before.run).parent != Path(after.run).parent
    assert not Path(before.run).exists()


@in_loop
async def test_while_it_is_replaced_there_is_always_a_backend(
    opened: Opened, tmp_path: Path
) -> None:
    backends = opened()
    sources = [str(folder(tmp_path / name, files)) for name, files in VERSIONS.items()]
    await backends.fetch(Wanted(backend="engine", uri=sources[0]), tell=lambda _: None)

    async def replace() -> None:
        for uri in sources * 5:
            await backends.fetch(Wanted(backend="engine", uri=uri), tell=lambda _: None)

    replacing = asyncio.create_task(replace())
    looks = 0
    while not replacing.done():
        assert backends.find("engine") is not None
        looks += 1
        await asyncio.sleep(0)
    await replacing
    assert looks > 20


@in_loop
async def test_a_cancelled_unpacking_leaves_the_old_backend_and_no_rest(
    opened: Opened, root: Path, tmp_path: Path
) -> None:
    backends = opened(download_rate=200_000)
    old = str(folder(tmp_path / "old", VERSIONS["old"]))
    before = await backends.fetch(Wanted(backend="engine", uri=old), tell=lambda _: None)
    packed = tmp_path / "new.tar"
    subprocess.run(
        ["tar", "cf", packed, "-C", folder(tmp_path / "new", VERSIONS["new"]), "."], check=True
    )
    under_way = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(step: Step) -> None:
        if step.current > 300_000:
            loop.call_soon_threadsafe(under_way.set)

    running = asyncio.create_task(
        backends.fetch(Wanted(backend="engine", uri=str(packed)), tell=tell)
    )
    await under_way.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert backends.find("engine") == before
    assert parts(before.run) == {b"old"}
    assert list((root / ".incoming").iterdir()) == []


@in_loop
async def test_a_folder_put_there_by_hand_is_a_backend_and_can_be_replaced(
    opened: Opened, root: Path, tmp_path: Path
) -> None:
    folder(root / "engine", VERSIONS["old"])
    backends = opened()
    found = backends.find("engine")
    assert found is not None
    assert found.run == str(root.resolve() / "engine" / "run.sh")
    new = str(folder(tmp_path / "new", VERSIONS["new"]))
    replaced = await backends.fetch(Wanted(backend="engine", uri=new), tell=lambda _: None)
    assert parts(replaced.run) == {b"new"}
    assert len(list((root / ".versions").iterdir())) == 1
    await backends.delete("engine")
    assert list((root / ".versions").iterdir()) == []


@in_loop
async def test_a_folder_put_there_by_hand_can_be_deleted(opened: Opened, root: Path) -> None:
    folder(root / "engine", VERSIONS["old"])
    backends = opened()
    await backends.delete("engine")
    assert backends.listed() == []
    with pytest.raises(Refused, match="backend engine is not installed"):
        await backends.delete("engine")


def test_a_folder_that_was_being_replaced_when_the_power_failed_comes_back(
    opened: Opened, root: Path
) -> None:
    folder(root / ".versions" / "engine.adopted", VERSIONS["old"])
    found = opened().find("engine")
    assert found is not None
    assert parts(found.run) == {b"old"}
