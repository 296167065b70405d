import asyncio
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
import yaml

from tests.worker_machine.archives import sha256
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from tests.worker_machine.running import processes
from worker import builtin
from worker.machine import Gallery, Wanted
from worker.rpc import backend_pb2 as pb
from worker.rpc.client import BackendClient

REPOSITORY = Path(__file__).resolve().parents[2]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_same_bytes_are_written_every_time_and_only_once(tmp_path: Path) -> None:
    builtin.galleries(tmp_path / "a")
    builtin.galleries(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    written = {path: path.stat().st_ino for path in (tmp_path / "a").rglob("*")}
    builtin.galleries(tmp_path / "a")
    assert {path: path.stat().st_ino for path in (tmp_path / "a").rglob("*")} == written


def test_many_workers_may_write_them_at_once(tmp_path: Path) -> None:
    threads = [threading.Thread(target=builtin.galleries, args=[tmp_path]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = set(contents(tmp_path))
    assert {"index.yaml", "previous/index.yaml"} < names
    assert len(names) == 4
    for index in (tmp_path / "index.yaml", tmp_path / "previous/index.yaml"):
        [entry] = yaml.safe_load(index.read_text())
        assert sha256((index.parent / entry["uri"]).read_bytes()) == entry["sha256"]


def test_a_damaged_index_is_written_anew(tmp_path: Path) -> None:
    builtin.galleries(tmp_path)
    before = contents(tmp_path)
    (tmp_path / "index.yaml").write_text("half of it")
    builtin.galleries(tmp_path)
    assert contents(tmp_path) == before


def test_the_command_prints_what_it_wrote(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "worker.builtin", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert f"builtin: {tmp_path}/index.yaml\n  reference 1.1.0 sha256:" in told
    assert f"builtin-previous: {tmp_path}/previous/index.yaml\n  reference 1.0.0 sha256:" in told


@in_loop
async def test_an_upgrade_brings_a_new_version_that_can_do_more(
    opened: Opened, tmp_path: Path, galleries: tuple[Gallery, Gallery]
) -> None:
    backends = opened(galleries=galleries)
    digests = set()
    abilities = []
    async with processes(tmp_path) as own:
        for wanted in ("builtin-previous@reference", "builtin@reference"):
            found = await backends.fetch(Wanted(backend=wanted), tell=lambda _: None)
            digests.add(found.digest)
            started = await own.start(f"{found.version}#0", found)
            async with BackendClient(started.loopback) as client:
                await client.load(pb.ModelOptions(Model="m"), within=timedelta(minutes=1))
                memory = (await client.status()).memory.total
                abilities.append((found.version, memory > 0, await tokenizes(client)))
    assert abilities == [("1.0.0", False, False), ("1.1.0", True, True)]
    assert len(digests) == 2


async def tokenizes(client: BackendClient) -> bool:
    try:
        return (await client.tokenize(pb.PredictOptions(Prompt="a b c"))).length == 3
    except grpc.aio.AioRpcError as error:
        return error.code() is not grpc.StatusCode.UNIMPLEMENTED


@in_loop
async def test_installing_writes_nothing_into_the_folder_afterwards(
    opened: Opened, tmp_path: Path, galleries: tuple[Gallery, Gallery]
) -> None:
    found = await opened(galleries=galleries).fetch(
        Wanted(backend="reference"), tell=lambda _: None
    )
    before = contents(Path(found.run).parent)
    async with processes(tmp_path) as own:
        await own.start("m#0", found)
    assert contents(Path(found.run).parent) == before


@pytest.mark.parametrize("wanted", ["reference", "builtin@reference"])
@in_loop
async def test_eight_installs_at_once_end_in_one_backend(
    opened: Opened, galleries: tuple[Gallery, Gallery], wanted: str
) -> None:
    backends = opened(galleries=galleries)
    await asyncio.gather(
        *(backends.fetch(Wanted(backend=wanted), tell=lambda _: None) for _ in range(8))
    )
    assert [one.name for one in backends.listed()] == ["reference"]
