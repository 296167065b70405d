"""Archives and folders into a Tree.

Nothing is extracted by tarfile itself: its own `data` filter let links escape in Pythons that we
run on (CVE-2025-4517), and knows no limits.
"""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from worker.backends.limits import Limits
from worker.backends.tree import CHUNK, Tree, walk
from worker.machine import Refused

Told = Callable[[int], None]  # bytes of the archive that were read
# Everything the standard library raises at broken or hostile archives, short of a full disk.
BROKEN = (
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,  # thousands of headers about headers
)


def archive(path: Path, tree: Tree, *, limits: Limits, told: Told) -> None:
    """Unpack a tar, plain or compressed, as a stream of entries that are judged one by one."""
    size = path.stat().st_size
    tree.allowed = min(limits.unpacked, max(size * limits.ratio, limits.ratio_from))
    try:
        with path.open("rb") as raw, _decompressed(raw) as plain:
            limit = tree.allowed + limits.entries * 1024  # headers and padding
            metered = Metered(plain, limit=limit, told=lambda: told(raw.tell()))
            with tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r:") as tar:
                while member := tar.next():
                    _unpack(tar, member, tree)
                    tar.members.clear()  # type: ignore[attr-defined]  # or it remembers them all
    except (OSError, *BROKEN) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's; a decompressor's has no number
        raise Refused(f"{path.name} is not a readable tar archive: {error}") from error


def folder(source: Path, tree: Tree) -> None:
    """Copy a folder under the same rules as an archive."""
    for name, entry in walk(source):
        if entry.is_symlink():
            tree.link(name, os.readlink(entry.path))
        elif entry.is_dir():
            tree.directory(name)
        elif entry.is_file():
            with open(entry.path, "rb") as file:
                status = os.fstat(file.fileno())
                executable = bool(status.st_mode & stat.S_IXUSR)
                tree.file(name, file, size=status.st_size, executable=executable)
        else:
            raise Refused(f"{name} is neither a file, a folder nor a link")


class Metered(io.RawIOBase):
    """The unpacked stream, with an end. A header that wants megabytes is not a header."""

    def __init__(self, plain: IO[bytes], *, limit: int, told: Callable[[], None]) -> None:
        super().__init__()
        self._plain = plain
        self._limit = limit
        self._told = told

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise Refused("the archive has a header of more than a megabyte")
        self._within(self._plain.tell() + size)
        self._told()
        return self._plain.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._within(offset)
        return self._plain.seek(offset, whence)

    def tell(self) -> int:
        return self._plain.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _within(self, position: int) -> None:
        if position > self._limit:
            raise Refused(f"the archive unpacks to more than {self._limit} bytes")


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    return raw


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree) -> None:
    if member.isdir():
        tree.directory(member.name)
    elif member.issym():
        tree.link(member.name, member.linkname)
    elif member.islnk():
        tree.hard_link(member.name, member.linkname)
    elif member.isfile():
        source = tar.extractfile(member)
        assert source is not None
        executable = bool(member.mode & stat.S_IXUSR)
        tree.file(member.name, source, size=member.size, executable=executable)
    else:
        raise Refused(f"{member.name} is neither a file, a folder nor a link")
