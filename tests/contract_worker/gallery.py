"""Galleries made for the suite: the stub backend as a folder, as an archive and behind HTTP."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import yaml

from tests.contract_worker.controlplane import ControlPlane

RUN = '#!/bin/sh\ncd "$(dirname "$0")" && exec {python} stub_backend.py "$@"\n'
STUB = Path(__file__).with_name("stub_backend.py")
WEIGHTS = 4 * 1024 * 1024  # bytes: enough for a download to take several steps


def folder(where: Path, *, manner: str = "", version: str = "1.0.0", weights: int = 0) -> Path:
    """A backend's folder, ready to be copied or packed."""
    where.mkdir(parents=True)
    (where / "run.sh").write_text(RUN.format(python=sys.executable))
    (where / "run.sh").chmod(0o755)
    (where / "stub_backend.py").write_bytes(STUB.read_bytes())
    (where / "manner").write_text(manner)
    (where / "version").write_text(version)
    if weights:
        (where / "weights.bin").write_bytes(hashlib.shake_256(version.encode()).digest(weights))
    return where


def archive(of: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(of, arcname=".")
    return packed.getvalue()


class Galleries:
    """One index on the disk and the files it names; rewritten by what a test adds."""

    def __init__(self, home: Path, plane: ControlPlane) -> None:
        self._home = home
        self._plane = plane
        self._entries: dict[str, dict[str, str]] = {}
        self._made = 0

    @property
    def index(self) -> Path:
        return self._home / "index.yaml"

    def text(self) -> str:
        """What a request carries: a string that contains JSON."""
        return json.dumps([{"name": "contract", "url": str(self.index)}])

    def add_folder(self, name: str, *, manner: str = "", version: str = "1.0.0") -> None:
        made = self._folder(manner=manner, version=version)
        self._add(name, version, uri=str(made))

    def add_archive(self, name: str, *, manner: str = "", version: str = "1.0.0") -> None:
        content = archive(self._folder(manner=manner, version=version))
        path = self._home / f"{name}-{self._made}.tar.gz"
        path.write_bytes(content)
        self._add(name, version, uri=str(path), sha256=hashlib.sha256(content).hexdigest())

    def add_address(
        self, name: str, *, seconds: float = 0.0, manner: str = "", version: str = "1.0.0"
    ) -> None:
        """Behind HTTP; with `seconds` the download takes about so long."""
        content = archive(self._folder(manner=manner, version=version, weights=WEIGHTS))
        file = f"{name}-{self._made}.tar.gz"
        self._plane.files[file] = content
        self._plane.slow[file] = seconds
        uri = f"{self._plane.url}/files/{file}"
        self._add(name, version, uri=uri, sha256=hashlib.sha256(content).hexdigest())

    def spoil(self, name: str) -> None:
        """From now on the index names another checksum than the file has."""
        self._entries[name]["sha256"] = "0" * 64
        self._write()

    def _folder(self, *, manner: str, version: str, weights: int = 0) -> Path:
        self._made += 1
        where = self._home / f"made-{self._made}"
        return folder(where, manner=manner, version=version, weights=weights)

    def _add(self, name: str, version: str, **where: str) -> None:
        self._entries[name] = {"name": name, "version": version, **where}
        self._write()

    def _write(self) -> None:
        self.index.write_text(yaml.safe_dump(list(self._entries.values())))
