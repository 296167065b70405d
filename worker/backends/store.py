"""The folder of backends: what is in it, and how something new gets into it in one step.

    <root>/<name>               a link, swapped by one rename: there is no moment without a backend
    <root>/.versions/<name>.*   what it points to; a process knows by this path that it is obsolete
    <root>/.incoming/           being unpacked; whatever a crash leaves here is swept at the start

A plain folder `<root>/<name>`, put there by hand or by LocalAI, counts as well.
"""

import ctypes
import fcntl
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.machine import Installed, Refused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
METADATA = "metadata.json"
RUN = "run.sh"
ADOPTED = "adopted"
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """metadata.json, with LocalAI's keys."""

    name: str = ""
    alias: str = ""
    version: str = ""
    digest: str = ""
    uri: str = ""
    gallery_url: str = ""
    installed_at: str = ""
    meta_backend_for: str = ""  # the concrete backend that this one only points to


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A folder and who it answers to."""

    installed: Installed
    metadata: Metadata


class Store:
    """One folder of backends, held by one worker at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._incoming = root / ".incoming"
        self._versions = root / ".versions"
        for directory in (self._incoming, self._versions):
            directory.mkdir(parents=True, exist_ok=True)
        self._lock = (root / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Refused(f"{root} is in use by another worker") from None
        self._sweep()

    def close(self) -> None:
        self._lock.close()

    def stage(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=self._incoming))

    def commit(self, staged: Path, name: str) -> None:
        """Make a finished folder the backend of this name; the old one is gone afterwards."""
        _flush(staged)
        staged.chmod(0o755)
        version = self._versions / f"{name}.{secrets.token_hex(6)}"
        staged.rename(version)
        place = self.root / name
        if place.is_dir() and not place.is_symlink():
            place = self._adopt(place)
        old = place.resolve() if place.is_symlink() else None
        self._point(name, version)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def remove(self, name: str) -> None:
        place = self.root / name
        if not place.is_symlink():
            place = self._adopt(place)
        version = place.resolve()
        place.unlink()
        _sync(self.root)
        shutil.rmtree(version, ignore_errors=True)

    def _adopt(self, place: Path) -> Path:
        """Turn a plain folder into a version; a crash in between is healed by the sweep."""
        version = self._versions / f"{place.name}.{ADOPTED}"
        place.rename(version)
        self._point(place.name, version)
        return place

    def _point(self, name: str, version: Path) -> None:
        link = self._incoming / f"{name}.{secrets.token_hex(6)}"
        link.symlink_to(Path(".versions") / version.name)
        _sync(self._versions)
        link.rename(self.root / name)
        _sync(self.root)

    def _sweep(self) -> None:
        for leftover in self._incoming.iterdir():
            discard(leftover)
        for version in self._versions.iterdir():
            name, _, kind = version.name.rpartition(".")
            place = self.root / name
            if kind == ADOPTED and not os.path.lexists(place):
                self._point(name, version)
            elif not place.is_symlink() or place.resolve() != version.resolve():
                discard(version)


def valid(name: str) -> str:
    """`name` if it can be a folder of ours, and of nobody else."""
    if not NAME.fullmatch(name):
        raise Refused(f"{name[:140]!r} is not a valid backend name")
    return name


def scan(root: Path, *, is_system: bool) -> list[Found]:
    """Every backend in a folder, by name. What has no run.sh is not one."""
    found = {}
    for place in sorted(root.iterdir()) if root.is_dir() else ():
        if NAME.fullmatch(place.name) and (place.is_symlink() or place.is_dir()):
            found[place.name] = _look(place, is_system=is_system)
    for name, backend in list(found.items()):
        if target := backend.metadata.meta_backend_for:
            concrete = found.get(target)
            run = concrete.installed.run if concrete else ""
            found[name] = Found(
                installed=_installed(name, backend.metadata, run=run, is_system=is_system),
                metadata=backend.metadata,
            )
    return [backend for backend in found.values() if backend.installed.run]


def write(directory: Path, metadata: Metadata) -> None:
    (directory / METADATA).write_text(json.dumps(asdict(metadata), indent=2) + "\n")


def _look(place: Path, *, is_system: bool) -> Found:
    directory = place.resolve()
    metadata = _read(directory / METADATA)
    run = str(directory / RUN) if (directory / RUN).is_file() else ""
    if place.resolve() != directory:  # swapped under our eyes, the old files may be gone
        return _look(place, is_system=is_system)
    return Found(
        installed=_installed(place.name, metadata, run=run, is_system=is_system),
        metadata=metadata,
    )


def _installed(name: str, metadata: Metadata, *, run: str, is_system: bool) -> Installed:
    return Installed(
        name=name,
        run=run,
        alias=metadata.alias,
        version=metadata.version,
        digest=metadata.digest,
        uri=metadata.uri,
        gallery_url=metadata.gallery_url,
        installed_at=metadata.installed_at,
        is_system=is_system,
        is_meta=bool(metadata.meta_backend_for),
    )


def _read(path: Path) -> Metadata:
    """Tolerant: a folder put there by hand has no metadata, LocalAI's has more keys."""
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError):
        return Metadata()
    if not isinstance(loaded, dict):
        return Metadata()
    known = Metadata.__dataclass_fields__
    return Metadata(**{k: v for k, v in loaded.items() if k in known and isinstance(v, str)})


def _flush(directory: Path) -> None:
    """All of the new files to the disk before anything points to them."""
    if _LIBC is None:
        os.sync()
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if _LIBC.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs failed", str(directory))
    finally:
        os.close(descriptor)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
