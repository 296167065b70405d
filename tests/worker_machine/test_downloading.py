import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.worker_machine.archives import GOOD, sha256, tar
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from tests.worker_machine.web import Site, serving
from worker.backends import DiskBackends, Limits
from worker.machine import Gallery, Installed, Refused, Step, Wanted

BIG = {**GOOD, "weights.bin": os.urandom(3 * 2**20)}
PACKED = tar(BIG)
HALF = len(PACKED) // 2


def index_of(site: Site, **entry: object) -> list[Gallery]:
    lines = [f"  {key}: {value}" for key, value in entry.items()]
    site.files["/index.yaml"] = ("- name: engine\n" + "\n".join(lines)).encode()
    return [Gallery(name="web", url=f"{site.url}/index.yaml")]


async def install(backends: DiskBackends, galleries: list[Gallery]) -> Installed:
    return await backends.fetch(Wanted(backend="engine", galleries=galleries), tell=lambda _: None)


def leftovers(root: Path) -> list[str]:
    return sorted(path.suffix for path in (root / ".downloads").iterdir())


@in_loop
async def test_an_archive_behind_an_address_is_installed(opened: Opened, root: Path) -> None:
    async with serving(Site(files={"/files/engine.tgz": PACKED})) as site:
        galleries = index_of(site, uri="files/engine.tgz", sha256=sha256(PACKED), version="3")
        found = await install(opened(), galleries)
    assert (found.version, found.digest) == ("3", f"sha256:{sha256(PACKED)}")
    assert (Path(found.run).parent / "weights.bin").read_bytes() == BIG["weights.bin"]
    assert leftovers(root) == []


@in_loop
async def test_a_cut_connection_is_continued_where_it_was_cut(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED}, cuts={"/x.tgz": [HALF, 1000]})
    async with serving(site):
        found = await install(opened(), index_of(site, uri="x.tgz", sha256=sha256(PACKED)))
    assert found.digest == f"sha256:{sha256(PACKED)}"
    ranges = [asked for path, asked in site.asked if path == "/x.tgz"]
    starts = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for asked in ranges]
    assert starts[0] == 0 < starts[1] <= HALF
    assert starts[1] < starts[2] <= starts[1] + 1000


@in_loop
async def test_a_cancelled_download_goes_on_after_a_restart(opened: Opened, root: Path) -> None:
    site = Site(files={"/x.tgz": PACKED})
    reached = asyncio.Event()

    def tell(step: Step) -> None:
        if step.phase == "downloading" and step.current > 2**20:
            reached.set()

    async with serving(site):
        wanted = Wanted(
            backend="engine", galleries=index_of(site, uri="x.tgz", sha256=sha256(PACKED))
        )
        slow = opened(download_rate=2**20)
        running = asyncio.create_task(slow.fetch(wanted, tell=tell))
        await reached.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert slow.listed() == []
        assert leftovers(root) == [".json", ".part"]
        await opened().fetch(wanted, tell=tell)
    again = site.asked[-1][1]
    assert int(again.removeprefix("bytes=").rstrip("-")) > 2**20


def test_an_old_unfinished_download_is_cleared_away(opened: Opened, root: Path) -> None:
    opened()
    for name, age in {"old": timedelta(days=8), "young": timedelta(days=6)}.items():
        path = root / ".downloads" / f"{name}.part"
        path.touch()
        os.utime(path, (time.time() - age.total_seconds(),) * 2)
    opened()
    assert [path.stem for path in (root / ".downloads").iterdir()] == ["young"]


@in_loop
async def test_a_file_that_changed_in_between_is_never_mixed_with_the_old_one(
    opened: Opened,
) -> None:
    newer = tar({**BIG, "weights.bin": os.urandom(3 * 2**20)})
    site = Site(files={"/x.tgz": PACKED}, etags={"/x.tgz": '"old"'}, cuts={"/x.tgz": [HALF]})
    backends = opened()

    def tell(step: Step) -> None:
        if step.current:
            site.files["/x.tgz"], site.etags["/x.tgz"] = newer, '"new"'

    async with serving(site):
        wanted = Wanted(backend="engine", uri=f"{site.url}/x.tgz")
        found = await backends.fetch(wanted, tell=tell)
    assert found.digest == f"sha256:{sha256(newer)}"


@in_loop
async def test_without_an_etag_or_a_checksum_a_cut_file_is_fetched_anew(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED}, cuts={"/x.tgz": [HALF]})
    async with serving(site):
        await opened().fetch(Wanted(backend="engine", uri=f"{site.url}/x.tgz"), tell=lambda _: None)
    assert [asked for _, asked in site.asked] == ["", ""]


@in_loop
async def test_a_server_without_ranges_is_asked_for_everything_again(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED}, cuts={"/x.tgz": [HALF]}, ranges=False)
    async with serving(site):
        found = await install(opened(), index_of(site, uri="x.tgz", sha256=sha256(PACKED)))
    assert found.digest == f"sha256:{sha256(PACKED)}"


@in_loop
async def test_a_length_that_nobody_told_is_no_obstacle(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED}, chunked=True)
    async with serving(site):
        assert await install(opened(), index_of(site, uri="x.tgz", sha256=sha256(PACKED)))


@in_loop
async def test_a_wrong_checksum_installs_nothing_and_keeps_nothing(
    opened: Opened, root: Path
) -> None:
    backends = opened()
    async with serving(Site(files={"/x.tgz": PACKED})) as site:
        galleries = index_of(site, uri="x.tgz", sha256="ab" * 32)
        with pytest.raises(Refused, match="wrong checksum: expected sha256:abab"):
            await install(backends, galleries)
    assert backends.listed() == []
    assert leftovers(root) == []


@in_loop
async def test_a_mirror_steps_in_and_the_bytes_so_far_count(opened: Opened) -> None:
    site = Site(files={"/mirror.tgz": PACKED})
    async with serving(site):
        galleries = index_of(
            site, uri="gone.tgz", sha256=sha256(PACKED), mirrors="[wrong.tgz, mirror.tgz]"
        )
        site.files["/wrong.tgz"] = b"something else"
        assert await install(opened(), galleries)
    assert [path for path, _ in site.asked] == [
        "/index.yaml",
        "/gone.tgz",
        "/wrong.tgz",
        "/mirror.tgz",
    ]


@in_loop
async def test_when_no_address_works_each_says_why(opened: Opened) -> None:
    async with serving(Site()) as site:
        galleries = index_of(site, uri="a.tgz", mirrors="[b.tgz]")
        with pytest.raises(Refused, match=r"a\.tgz: answered 404; .*b\.tgz: answered 404"):
            await install(opened(), galleries)


@in_loop
async def test_redirects_lead_to_other_addresses_only(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED})
    site.redirects = {"/moved.tgz": "/x.tgz", "/evil.tgz": "file:///etc/passwd", "/r": "/r"}
    async with serving(site):
        backends = opened()
        for path, allowed in {"/moved.tgz": True, "/evil.tgz": False, "/r": False}.items():
            wanted = Wanted(backend="engine", uri=site.url + path)
            if allowed:
                assert await backends.fetch(wanted, tell=lambda _: None)
            else:
                with pytest.raises(Refused, match="download failed"):
                    await backends.fetch(wanted, tell=lambda _: None)


@in_loop
async def test_an_index_from_the_network_cannot_name_files_of_this_machine(
    opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "x.tgz").write_bytes(PACKED)
    async with serving(Site()) as site:
        for uri in (str(tmp_path / "x.tgz"), (tmp_path / "x.tgz").as_uri()):
            with pytest.raises(Refused, match="is a file of this machine"):
                await install(opened(), index_of(site, uri=uri))


@in_loop
async def test_what_is_too_large_is_refused_before_and_while_it_comes(opened: Opened) -> None:
    for chunked in (False, True):
        site = Site(files={"/x.tgz": PACKED}, chunked=chunked)
        async with serving(site):
            backends = opened(limits=Limits(download=2**20))
            with pytest.raises(Refused, match="larger than 1048576 bytes"):
                await install(backends, index_of(site, uri="x.tgz"))


@in_loop
async def test_an_index_of_unreasonable_size_is_refused(opened: Opened) -> None:
    async with serving(Site()) as site:
        galleries = index_of(site, uri="x.tgz", description="x" * 5000)
        with pytest.raises(Refused, match="larger than 1000 bytes"):
            await install(opened(limits=Limits(index=1000)), galleries)


@in_loop
async def test_nobody_at_the_address_is_a_refusal(opened: Opened) -> None:
    async with serving(Site()) as site:
        url = site.url
    wanted = Wanted(backend="engine", uri=f"{url}/x.tgz")
    with pytest.raises(Refused, match="download failed"):
        await opened(retry_pause=timedelta()).fetch(wanted, tell=lambda _: None)


@in_loop
async def test_two_backends_of_one_archive_are_downloaded_one_after_the_other(
    opened: Opened,
) -> None:
    backends = opened()
    async with serving(Site(files={"/x.tgz": PACKED})) as site:
        both = [
            backends.fetch(Wanted(backend=name, uri=f"{site.url}/x.tgz"), tell=lambda _: None)
            for name in ("a", "b")
        ]
        await asyncio.gather(*both)
    assert {one.name for one in backends.listed()} == {"a", "b"}


@in_loop
async def test_downloads_keep_to_their_rate(opened: Opened) -> None:
    site = Site(files={"/x.tgz": PACKED})
    async with serving(site):
        backends = opened(download_rate=4 * 2**20)
        began = time.monotonic()
        await install(backends, index_of(site, uri="x.tgz", sha256=sha256(PACKED)))
    assert time.monotonic() - began > len(PACKED) / (4 * 2**20) - 0.3
