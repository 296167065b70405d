"""Writes the files of a backend into a folder, and never anywhere else."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Protocol

from worker.backends.blocking import Check
from worker.backends.limits import Limits, Room
from worker.machine import Refused

CHUNK = 2**20
LOOK_EVERY = 32 * 2**20  # bytes between two looks at the disk
NAME_LENGTH = 255
PATH_LENGTH = 1024


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Tree:
    """A folder being filled.

    Each entry is judged by its own words (no absolute paths, no way up, links only to what lies
    inside) and by what is on the disk: its parent must really be where its name says, so nothing
    is ever written through a link.
    """

    def __init__(self, root: Path, *, limits: Limits, room: Room, check: Check) -> None:
        self._root = Path(os.path.realpath(root))
        self._limits = limits
        self._room = room
        self._check = check
        self._checked = {self._root}
        self._entries = 0
        self.written = 0  # bytes
        self.allowed = limits.unpacked
        self._looked = 0

    def directory(self, name: str) -> None:
        path = self._place(name)
        if path != self._root:
            self._make(path)

    def file(self, name: str, source: Source, *, size: int, executable: bool) -> None:
        self._afford(size, name)
        path = self._place(name)
        mode = 0o755 if executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, mode)
        except FileExistsError:
            raise Refused(f"{name} is there twice") from None
        with os.fdopen(descriptor, "wb") as target:
            os.fchmod(descriptor, mode)
            self._copy(source, target.fileno(), size, name)

    def link(self, name: str, target: str) -> None:
        path = self._place(name)
        self._inside(name, target)
        try:
            # As judged, without "//" and ".": with them realpath() calls a link to itself "/".
            path.symlink_to(PurePosixPath(target))
        except FileExistsError:
            raise Refused(f"{name} is there twice") from None

    def hard_link(self, name: str, target: str) -> None:
        """To a file that was written before; the same bytes under a second name."""
        path, existing = self._place(name), self._place(target)
        try:
            if not stat.S_ISREG(existing.lstat().st_mode):
                raise Refused(f"{name} is a hard link to something that is not a file")
            os.link(existing, path, follow_symlinks=False)
        except FileNotFoundError:
            raise Refused(f"{name} is a hard link to {target}, which is not there") from None
        except FileExistsError:
            raise Refused(f"{name} is there twice") from None

    def _place(self, name: str) -> Path:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise Refused(f"more than {self._limits.entries} files")
        self._check()
        parts = _parts(name)
        path = self._root.joinpath(*parts)
        if parts:
            self._make(path.parent)
        return path

    def _make(self, directory: Path) -> None:
        if directory in self._checked:
            return
        self._make(directory.parent)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o755)
        if not stat.S_ISDIR(directory.lstat().st_mode):
            shown = directory.relative_to(self._root)
            raise Refused(f"{shown} is a file or a link, nothing can be put into it")
        self._checked.add(directory)

    def _inside(self, name: str, target: str) -> None:
        """A way up may only come first: behind another link it would lead who knows where."""
        steps = PurePosixPath(target).parts
        ups = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
        depth = len(_parts(name)) - 1
        if not target or "\0" in target or target.startswith("/") or ".." in steps[ups:]:
            raise Refused(f"{name} links to {target!r}, which is not allowed")
        if ups > depth:
            raise Refused(f"{name} links to {target!r}, outside of the backend")

    def _afford(self, size: int, name: str) -> None:
        if size < 0 or self.written + size > self.allowed:
            raise Refused(f"unpacks to more than {self.allowed} bytes (at {name})")

    def _copy(self, source: Source, target: int, size: int, name: str) -> None:
        left = size
        while left:
            self._check()
            chunk = source.read(min(left, CHUNK))
            if not chunk:
                raise Refused(f"{name} ends too early")
            _write(target, chunk)
            left -= len(chunk)
            self.written += len(chunk)
            if self.written - self._looked >= LOOK_EVERY:
                self._looked = self.written
                self._room.check(self._root, needed=0)


def _parts(name: str) -> tuple[str, ...]:
    """The steps of a relative path; Refused for every other kind of name."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
        raise Refused(f"{name[:200]!r} would be written outside of the backend")
    if len(name) > PATH_LENGTH or any(len(os.fsencode(part)) > NAME_LENGTH for part in parts):
        raise Refused(f"{name[:60]!r}... is too long a name")
    return parts


def _write(target: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(target, view) :]


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every entry below `root` with its relative name, parents first, in an order that is fixed."""
    pending = [root]
    while pending:
        directory = pending.pop()
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            yield os.path.relpath(entry.path, root), entry
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))


def digest(root: Path, *, check: Check, without: frozenset[str]) -> str:
    """What a folder contains, as one number: names, kinds, execute bits and bytes."""
    total = hashlib.sha256()
    lines = []
    for name, entry in walk(root):
        check()
        if name in without:
            continue
        if entry.is_symlink():
            lines.append(f"l {name}\0{os.readlink(entry.path)}")
        elif entry.is_dir():
            lines.append(f"d {name}")
        else:
            executable = "x" if entry.stat().st_mode & stat.S_IXUSR else "-"
            lines.append(f"f{executable} {name}\0{file_digest(Path(entry.path), check=check)}")
    for line in sorted(lines):
        total.update(os.fsencode(line) + b"\0\n")
    return total.hexdigest()


def file_digest(path: Path, *, check: Check) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            check()
            total.update(chunk)
    return total.hexdigest()
