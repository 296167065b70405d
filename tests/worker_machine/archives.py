"""Archives and folders for the worker to install, good ones and bad ones."""

import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

RUN = b"#!/bin/sh\nexec sleep 1000\n"
GOOD: Mapping[str, bytes] = {"run.sh": RUN, "lib/engine.bin": bytes(range(256)) * 64}


def member(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o644
    return info


def tar(
    files: Mapping[str, bytes] = GOOD, *, extra: Iterable[tarfile.TarInfo] = (), mode: str = "w:gz"
) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = member(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return packed.getvalue()


def folder(path: Path, files: Mapping[str, bytes] = GOOD) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def index(path: Path, *entries: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump([dict(entry) for entry in entries]))
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
