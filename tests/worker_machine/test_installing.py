import json
import os
import stat
from pathlib import Path

import pytest

from tests.worker_machine.archives import GOOD, RUN, folder, index, member, sha256, tar
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from worker.backends import DiskBackends
from worker.machine import Gallery, Refused, Step, Wanted


def silent(_: Step) -> None:
    """For those who do not look at progress."""


@in_loop
async def test_a_folder_is_installed_with_its_metadata(opened: Opened, tmp_path: Path) -> None:
    source = folder(tmp_path / "source")
    found = await opened().fetch(Wanted(backend="engine", uri=str(source)), tell=silent)
    assert Path(found.run).read_bytes() == RUN
    assert os.access(found.run, os.X_OK)
    assert found.digest.startswith("sha256:")
    metadata = json.loads((Path(found.run).parent / "metadata.json").read_text())
    assert metadata["name"] == "engine"
    assert metadata["uri"] == str(source)
    assert metadata["installed_at"] == found.installed_at != ""


@in_loop
async def test_equal_folders_have_equal_digests_and_changed_ones_others(
    opened: Opened, tmp_path: Path
) -> None:
    backends = opened()
    digests = []
    for name, files in {"a": GOOD, "b": GOOD, "c": {**GOOD, "lib/engine.bin": b"other"}}.items():
        source = folder(tmp_path / name, files)
        wanted = Wanted(backend="engine", uri=source.as_uri())
        digests.append((await backends.fetch(wanted, tell=silent)).digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
@in_loop
async def test_a_tar_archive_is_installed_however_it_is_packed(
    opened: Opened, tmp_path: Path, mode: str
) -> None:
    packed = tar(mode=mode)
    (tmp_path / "engine.tar").write_bytes(packed)
    wanted = Wanted(backend="engine", uri=str(tmp_path / "engine.tar"))
    found = await opened().fetch(wanted, tell=silent)
    assert found.digest == f"sha256:{sha256(packed)}"
    assert (Path(found.run).parent / "lib/engine.bin").read_bytes() == GOOD["lib/engine.bin"]


@in_loop
async def test_an_archive_wrapped_in_one_folder_is_unwrapped(
    opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "x.tgz").write_bytes(tar({f"engine-1.0/{k}": v for k, v in GOOD.items()}))
    wanted = Wanted(backend="engine", uri=str(tmp_path / "x.tgz"))
    found = await opened().fetch(wanted, tell=silent)
    assert (Path(found.run).parent / "lib/engine.bin").exists()


@in_loop
async def test_links_inside_of_the_backend_are_kept(opened: Opened, tmp_path: Path) -> None:
    links = [
        member("lib/current", kind=b"2", link="../lib/engine.bin"),
        member("lib/same", kind=b"1", link="lib/engine.bin"),
    ]
    (tmp_path / "x.tgz").write_bytes(tar(extra=links))
    wanted = Wanted(backend="engine", uri=str(tmp_path / "x.tgz"))
    home = Path((await opened().fetch(wanted, tell=silent)).run).parent
    assert os.readlink(home / "lib/current") == "../lib/engine.bin"
    assert (home / "lib/current").read_bytes() == GOOD["lib/engine.bin"]
    assert (home / "lib/same").read_bytes() == GOOD["lib/engine.bin"]


@in_loop
async def test_modes_with_special_bits_are_not_taken_over(opened: Opened, tmp_path: Path) -> None:
    evil = member("lib/tool")
    evil.mode = 0o6777
    (tmp_path / "x.tgz").write_bytes(tar(extra=[evil]))
    wanted = Wanted(backend="engine", uri=str(tmp_path / "x.tgz"))
    home = Path((await opened().fetch(wanted, tell=silent)).run).parent
    assert stat.S_IMODE((home / "lib/tool").stat().st_mode) == 0o755


@in_loop
async def test_a_gallery_entry_is_found_and_its_version_noted(
    opened: Opened, tmp_path: Path
) -> None:
    packed = tar()
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery/engine.tgz").write_bytes(packed)
    entry = {
        "name": "engine",
        "uri": "engine.tgz",
        "version": 1.5,
        "sha256": sha256(packed),
        "alias": "llm",
        "icon": "unknown keys are ignored",
    }
    listed = index(tmp_path / "gallery/index.yaml", entry, {"no name": True})
    backends = opened(galleries=[Gallery(name="home", url=str(listed))])
    found = await backends.fetch(Wanted(backend="engine"), tell=silent)
    assert (found.version, found.alias, found.gallery_url) == ("1.5", "llm", str(listed))
    assert backends.find("llm") == backends.find("home@engine") == found
    assert await backends.fetch(Wanted(backend="llm"), tell=silent)


@in_loop
async def test_the_gallery_can_be_named(opened: Opened, tmp_path: Path) -> None:
    own = [
        Gallery(
            name=name,
            url=index(
                tmp_path / name / "index.yaml",
                {"name": "engine", "uri": "files", "version": name},
            ).as_uri(),
        )
        for name in ("first", "second")
    ]
    for name in ("first", "second"):
        folder(tmp_path / name / "files")
    backends = opened(galleries=own)
    assert (await backends.fetch(Wanted(backend="engine"), tell=silent)).version == "first"
    wanted = Wanted(backend="second@engine")
    assert (await backends.fetch(wanted, tell=silent)).version == "second"
    asked = Wanted(backend="engine", galleries=own[1:])
    assert (await backends.fetch(asked, tell=silent)).version == "second"


@in_loop
async def test_a_broken_gallery_does_not_hide_the_others(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("{ [")
    folder(tmp_path / "files")
    good = index(tmp_path / "good.yaml", {"name": "engine", "uri": "files"})
    urls = [tmp_path / "broken.yaml", tmp_path / "missing.yaml", good]
    backends = opened(galleries=[Gallery(name=path.stem, url=str(path)) for path in urls])
    assert await backends.fetch(Wanted(backend="engine"), tell=silent)
    with pytest.raises(Refused, match=r"no gallery has a backend 'nope'.*not valid YAML.*missing"):
        await backends.fetch(Wanted(backend="nope"), tell=silent)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ("nvidia-cuda-12", "cuda12-engine"),
        ("nvidia-cuda-13", "nvidia-engine"),
        ("metal", "cpu-engine"),
        ("", "cpu-engine"),
    ],
)
@in_loop
async def test_a_meta_backend_leads_to_the_one_for_this_hardware(
    opened: Opened, tmp_path: Path, capability: str, expected: str
) -> None:
    choices = {
        "nvidia-cuda-12": "cuda12-engine",
        "nvidia": "nvidia-engine",
        "default": "cpu-engine",
    }
    concrete = [{"name": name, "uri": "files", "version": "2"} for name in choices.values()]
    folder(tmp_path / "files")
    listed = index(tmp_path / "index.yaml", {"name": "engine", "capabilities": choices}, *concrete)
    galleries = [Gallery(name="home", url=str(listed))]
    backends = opened(galleries=galleries, capability=capability)
    meta = await backends.fetch(Wanted(backend="engine"), tell=silent)
    real = backends.find(expected)
    assert real is not None
    assert (meta.name, meta.is_meta, meta.version) == ("engine", True, "2")
    assert (real.is_meta, real.run) == (False, meta.run)
    assert {one.name for one in backends.listed()} == {"engine", expected}
    await backends.delete("engine")
    assert backends.listed() == []


@in_loop
async def test_a_meta_backend_without_a_choice_for_this_hardware_says_so(
    opened: Opened, tmp_path: Path
) -> None:
    listed = index(tmp_path / "index.yaml", {"name": "engine", "capabilities": {"metal": "m"}})
    backends = opened(galleries=[Gallery(name="home", url=str(listed))], capability="amd")
    with pytest.raises(Refused, match="nothing for a machine with capability amd; it knows metal"):
        await backends.fetch(Wanted(backend="engine"), tell=silent)


@in_loop
async def test_an_ambiguous_alias_is_refused_until_one_of_them_is_installed(
    opened: Opened, tmp_path: Path
) -> None:
    folder(tmp_path / "files")
    entries = [{"name": name, "alias": "llm", "uri": "files"} for name in ("cpu-llm", "cuda-llm")]
    listed = index(tmp_path / "index.yaml", *entries)
    backends = opened(galleries=[Gallery(name="home", url=str(listed))])
    with pytest.raises(Refused, match="several backends are called llm: cpu-llm, cuda-llm"):
        await backends.fetch(Wanted(backend="llm"), tell=silent)
    await backends.fetch(Wanted(backend="cuda-llm"), tell=silent)
    assert (await backends.fetch(Wanted(backend="llm"), tell=silent)).name == "cuda-llm"


@in_loop
async def test_what_came_from_an_address_is_fetched_from_there_again(
    opened: Opened, tmp_path: Path
) -> None:
    source = folder(tmp_path / "source")
    backends = opened()
    first = await backends.fetch(Wanted(backend="engine", uri=str(source)), tell=silent)
    folder(source, {"run.sh": b"#!/bin/sh\n# newer\n"})
    second = await backends.fetch(Wanted(backend="engine"), tell=silent)
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("oci://quay.io/localai/backend:latest", "is an OCI image"),
        ("quay.io/localai/backend:latest", "is an OCI image"),
        ("ftp://host/file.tar", "ftp:// is not a known kind of address"),
        ("some/where.tar", "neither an absolute path nor an address"),
        ("/does/not/exist", "does not exist"),
        ("http://", "names no host"),
        ("/tmp/\0", "NUL"),
    ],
)
@in_loop
async def test_an_address_we_cannot_use_is_refused_in_words(
    opened: Opened, uri: str, why: str
) -> None:
    backends = opened()
    with pytest.raises(Refused, match=why):
        await backends.fetch(Wanted(backend="engine", uri=uri), tell=silent)
    assert backends.listed() == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a\0b", "x" * 200, "-rf", "a b"]
)
@in_loop
async def test_a_name_that_is_not_a_folder_of_ours_is_refused(
    opened: Opened, tmp_path: Path, name: str
) -> None:
    source = folder(tmp_path / "source")
    backends = opened()
    with pytest.raises(Refused, match="not a valid backend name"):
        await backends.fetch(Wanted(backend=name, uri=str(source)), tell=silent)
    with pytest.raises(Refused, match="not installed"):
        await backends.delete(name)


@pytest.mark.parametrize("entry", [{"uri": "files"}, {"capabilities": {"default": "engine"}}])
@in_loop
async def test_a_gallery_cannot_choose_a_folder_that_is_not_ours(
    opened: Opened, tmp_path: Path, entry: dict[str, object]
) -> None:
    folder(tmp_path / "files")
    evil = {"name": "../../evil", **entry}
    listed = index(tmp_path / "index.yaml", evil, {"name": "engine", "uri": "files"})
    backends = opened(galleries=[Gallery(name="home", url=str(listed))])
    with pytest.raises(Refused, match="not a valid backend name"):
        await backends.fetch(Wanted(backend="../../evil"), tell=silent)
    assert backends.listed() == []


@in_loop
async def test_a_folder_without_run_sh_is_not_a_backend(opened: Opened, tmp_path: Path) -> None:
    source = folder(tmp_path / "source", {"readme.txt": b"hello"})
    backends = opened()
    with pytest.raises(Refused, match=r"has no run\.sh"):
        await backends.fetch(Wanted(backend="engine", uri=str(source)), tell=silent)
    assert backends.listed() == []


@in_loop
async def test_the_backends_folder_cannot_be_installed_into_itself(
    opened: Opened, root: Path
) -> None:
    with pytest.raises(Refused, match="contains the backends folder itself"):
        await opened().fetch(Wanted(backend="engine", uri=str(root.parent)), tell=silent)


@in_loop
async def test_a_wrong_checksum_leaves_the_installed_one_untouched(
    opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "x.tgz").write_bytes(tar())
    backends = opened()
    before = await backends.fetch(
        Wanted(backend="engine", uri=str(tmp_path / "x.tgz")), tell=silent
    )
    listed = index(tmp_path / "index.yaml", {"name": "engine", "uri": "x.tgz", "sha256": "0" * 64})
    galleries = [Gallery(name="home", url=str(listed))]
    with pytest.raises(Refused, match="wrong checksum of engine: expected sha256:0000"):
        await backends.fetch(Wanted(backend="engine", galleries=galleries), tell=silent)
    assert backends.find("engine") == before
    assert Path(before.run).exists()


@in_loop
async def test_system_backends_are_listed_and_never_deleted(opened: Opened, tmp_path: Path) -> None:
    folder(tmp_path / "system/engine")
    backends = opened(system_root=tmp_path / "system")
    [found] = backends.listed()
    assert (found.name, found.is_system) == ("engine", True)
    with pytest.raises(Refused, match="system backend"):
        await backends.delete("engine")
    source = folder(tmp_path / "newer", {"run.sh": b"#!/bin/sh\n"})
    await backends.fetch(Wanted(backend="engine", uri=str(source)), tell=silent)
    assert [one.is_system for one in backends.listed()] == [False]
    await backends.delete("engine")
    assert [one.is_system for one in backends.listed()] == [True]


@in_loop
async def test_progress_is_told_from_the_first_look_to_the_last_byte(
    opened: Opened, tmp_path: Path
) -> None:
    packed = tar({**GOOD, "big.bin": os.urandom(5 * 2**20)})
    (tmp_path / "x.tgz").write_bytes(packed)
    steps: list[Step] = []
    await opened().fetch(Wanted(backend="engine", uri=str(tmp_path / "x.tgz")), tell=steps.append)
    assert steps[0].phase == "resolving"
    amounts = [step.current for step in steps[1:]]
    assert amounts == sorted(amounts)
    assert len(set(amounts)) > 5
    assert (steps[-1].current, steps[-1].total) == (len(packed), len(packed))


def test_two_workers_do_not_share_a_folder(opened: Opened, root: Path) -> None:
    opened()
    with pytest.raises(Refused, match="in use by another worker"):
        DiskBackends(root)
