"""The built-in galleries: the reference backend as real archives, in two versions.

    index.yaml                  gallery `builtin`: the current version
    previous/index.yaml         gallery `builtin-previous`: the one before, to upgrade from
    archives/<name>-<sha>.tar.gz

The previous version tells no memory in Status and does not count tokens.
"""

import gzip
import hashlib
import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from worker.machine import Gallery

NAME = "reference"
CURRENT = "1.1.0"
PREVIOUS = "1.0.0"
WEIGHTS = 6 * 2**20  # bytes: enough for a progress bar to be seen moving
PACKAGE = Path(__file__).resolve().parent
PARTS = ("__init__.py", "rpc/*.py", "reference/*.py", "reference/corpus.txt")


def galleries(directory: Path) -> tuple[Gallery, Gallery]:
    """Write both galleries into `directory` unless they are there; the current one first."""
    current, previous = directory / "index.yaml", directory / "previous" / "index.yaml"
    _publish(directory, previous, PREVIOUS)
    _publish(directory, current, CURRENT)
    return (
        Gallery(name="builtin", url=str(current.resolve())),
        Gallery(name="builtin-previous", url=str(previous.resolve())),
    )


def _publish(directory: Path, index: Path, version: str) -> None:
    """The archive first, then the index that names it, each in one step.

    Several workers may do this at once: they write the same bytes under the same names. Archives
    carry their source's hash in the name, so an index never names an archive of other sources.
    """
    made_of = hashlib.sha256()
    for name, _, content in _files(version):
        made_of.update(f"{name}\0{len(content)}\0".encode() + content)
    archive = directory / "archives" / f"{NAME}-{version}-{made_of.hexdigest()[:12]}.tar.gz"
    if not archive.exists():
        _replace(archive, _packed(version))
    text = _index(archive, index, version)
    if not index.exists() or index.read_bytes() != text:
        _replace(index, text)


def _index(archive: Path, index: Path, version: str) -> bytes:
    entry = {
        "name": NAME,
        "version": version,
        "description": "A small real backend that computes the same thing everywhere.",
        "license": "MIT",
        "tags": ["text", "embeddings", "demo"],
        "uri": os.path.relpath(archive, index.parent),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    return yaml.safe_dump([entry], sort_keys=False).encode()


def _files(version: str) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of everything in the folder of the backend, in a fixed order."""
    yield "run.sh", 0o755, (PACKAGE / "reference" / "run.sh").read_bytes()
    for pattern in PARTS:
        for path in sorted(PACKAGE.glob(pattern)):
            yield f"worker/{path.relative_to(PACKAGE).as_posix()}", 0o644, path.read_bytes()
    yield "worker/reference/VERSION", 0o644, f"{version}\n".encode()
    weights = hashlib.shake_256(f"weights of {version}".encode()).digest(WEIGHTS)
    yield "worker/reference/weights.bin", 0o644, weights


def _packed(version: str) -> bytes:
    """The same bytes every time: no clock and no names of this machine inside."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, mode, content in _files(version):
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    Path(name).replace(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m worker.builtin DIRECTORY")
    for gallery in galleries(Path(sys.argv[1])):
        print(f"{gallery.name}: {gallery.url}")
        for entry in yaml.safe_load(Path(gallery.url).read_text()):
            print(f"  {entry['name']} {entry['version']} sha256:{entry['sha256']}")
