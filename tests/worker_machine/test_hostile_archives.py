import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worker_machine.archives import GOOD, RUN, member, tar
from tests.worker_machine.conftest import Opened
from tests.worker_machine.loops import in_loop
from worker.backends import Limits
from worker.backends.limits import Room
from worker.backends.tree import Tree
from worker.backends.unpack import archive, folder
from worker.machine import Refused, Wanted

LINK, HARD, DEVICE, BLOCK, FIFO = b"2", b"1", b"3", b"4", b"6"
SMALL = Limits(unpacked=2**20, ratio_from=2**20, entries=50)

HOSTILE = {
    "way up": member("../escaped"),
    "way up in the middle": member("lib/../../escaped"),
    "absolute path": member("/tmp/escaped"),
    "link out": member("out", kind=LINK, link="../../etc"),
    "absolute link": member("out", kind=LINK, link="/etc/passwd"),
    "way up behind a name": member("out", kind=LINK, link="lib/../../x"),
    "empty link": member("out", kind=LINK, link=""),
    "hard link out": member("out", kind=HARD, link="../../../etc/passwd"),
    "hard link to nothing": member("out", kind=HARD, link="missing"),
    "hard link to a folder": member("out", kind=HARD, link="lib"),
    "device": member("null", kind=DEVICE),
    "block device": member("disk", kind=BLOCK),
    "pipe": member("pipe", kind=FIFO),
    "the same name twice": member("run.sh"),
    "a file as a folder": member("run.sh/inner"),
    "a name that is too long": member("x" * 300),
    "a path that is too long": member("x/" * 600 + "y"),
}


@pytest.mark.parametrize("what", HOSTILE)
@in_loop
async def test_a_hostile_entry_refuses_the_whole_archive(
    opened: Opened, tmp_path: Path, root: Path, what: str
) -> None:
    (tmp_path / "x.tgz").write_bytes(tar(extra=[HOSTILE[what]]))
    backends = opened()
    with pytest.raises(Refused):
        await backends.fetch(
            Wanted(backend="engine", uri=str(tmp_path / "x.tgz")), tell=lambda _: None
        )
    assert backends.listed() == []
    assert list((root / ".incoming").iterdir()) == []
    assert list((root / ".versions").iterdir()) == []


def unpacked(packed: bytes, into: Path, limits: Limits = SMALL) -> None:
    source = into.parent / "x.tar"
    source.write_bytes(packed)
    into.mkdir(exist_ok=True)
    room = Room(reserve=0)
    tree = Tree(into, limits=limits, room=room, check=lambda: None)
    archive(source, tree, limits=limits, told=lambda _: None)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    links = [member("lib2", kind=LINK, link="lib"), member("lib2/planted")]
    with pytest.raises(Refused, match="lib2 is a file or a link"):
        unpacked(tar(extra=links), tmp_path / "into")
    assert not (tmp_path / "into/lib/planted").exists()


def test_a_link_is_written_as_it_was_judged(tmp_path: Path) -> None:
    unpacked(tar(extra=[member("a", kind=LINK, link="a//")]), tmp_path / "into")
    assert os.readlink(tmp_path / "into/a") == "a"


def test_a_small_archive_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="unpacks to more than"):
        unpacked(tar({"run.sh": RUN, "zeros": bytes(2**21)}), tmp_path / "into")


def test_the_ratio_counts_beyond_a_reasonable_size(tmp_path: Path) -> None:
    limits = Limits(ratio=10, ratio_from=2**16)
    packed = tar({"run.sh": RUN, "zeros": bytes(2**20)})
    with pytest.raises(Refused, match="unpacks to more than"):
        unpacked(packed, tmp_path / "into", limits)


def test_more_files_than_allowed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="more than 50 files"):
        unpacked(tar(extra=[member(f"f{n}") for n in range(60)]), tmp_path / "into")


def test_a_file_that_claims_a_size_it_does_not_have_is_refused(tmp_path: Path) -> None:
    header = member("huge")
    header.size = 2**19
    with pytest.raises(Refused):
        unpacked(header.tobuf() + b"short", tmp_path / "into")
    header.size = 2**40
    with pytest.raises(Refused, match="unpacks to more than"):
        unpacked(header.tobuf(), tmp_path / "into")


def test_a_header_of_many_megabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    header = member("pax", kind=tarfile.XHDTYPE)
    header.size = 2**33
    with pytest.raises(Refused, match=r"header of more than a megabyte|not a readable tar"):
        unpacked(gzip.compress(header.tobuf() + bytes(2**21)), tmp_path / "into")


def test_headers_about_headers_end_in_a_refusal(tmp_path: Path) -> None:
    chained = member("pax", kind=tarfile.XHDTYPE).tobuf() * 5000
    with pytest.raises(Refused):
        unpacked(chained, tmp_path / "into")


def test_a_folder_is_held_to_the_same_rules(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "out").symlink_to("/etc")
    tree = Tree(tmp_path, limits=SMALL, room=Room(reserve=0), check=lambda: None)
    with pytest.raises(Refused, match="not allowed"):
        folder(source, tree)
    (source / "out").unlink()
    os.mkfifo(source / "out")
    with pytest.raises(Refused, match="neither a file"):
        folder(source, tree)


STEPS = st.lists(st.sampled_from(["..", ".", "a", "b", "c", "", "/"]), min_size=1, max_size=4)
TARGETS = STEPS.map("/".join)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, HARD, DEVICE, b"L"])
MEMBERS = st.one_of(
    st.builds(lambda name, target: member(name, kind=LINK, link=target), NAMES, TARGETS),
    st.builds(lambda name: member(name), NAMES),
    st.builds(lambda name: member(name, kind=tarfile.DIRTYPE), NAMES),
    st.builds(lambda name, kind, to: member(name, kind=kind, link=to), TARGETS, KINDS, TARGETS),
)


def everything_below(directory: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(directory):
        yield from (Path(parent) / name for name in names + files)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=300)
@given(st.lists(MEMBERS, max_size=8))
def test_whatever_an_archive_says_nothing_is_written_or_linked_outside(
    members: list[tarfile.TarInfo],
) -> None:
    with TemporaryDirectory() as home:
        outer = Path(os.path.realpath(home))
        inside = outer / "deep" / "into" / "here"
        inside.mkdir(parents=True)
        with suppress(Refused):
            unpacked(tar({}, extra=members, mode="w:"), inside)
        assert set(everything_below(outer)) - set(everything_below(inside)) <= {
            outer / "deep",
            outer / "deep/into",
            outer / "deep/into/here",
            outer / "deep/into/x.tar",
        }
        for path in everything_below(inside):
            with suppress(RuntimeError):  # round in circles is also not outside
                assert path.resolve().is_relative_to(inside)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
@given(st.data())
def test_a_damaged_archive_is_refused_or_unpacked_and_never_crashes(data: st.DataObject) -> None:
    packed = bytearray(tar(GOOD, mode=data.draw(st.sampled_from(["w:", "w:gz", "w:bz2", "w:xz"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    with TemporaryDirectory() as home, suppress(Refused):
        unpacked(bytes(packed[:cut]), Path(home) / "into")


def test_arbitrary_bytes_are_not_an_archive(tmp_path: Path) -> None:
    for junk in (b"", b"PK\x03\x04zip", os.urandom(4096), io.BytesIO(b"\x1f\x8b").getvalue()):
        with pytest.raises(Refused, match="not a readable tar archive"):
            unpacked(junk, tmp_path / "into")
