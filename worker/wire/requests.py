"""What a manager asks. Names come from outside: bounded, and never a path."""

from typing import Annotated, Self

import msgspec

from worker.machine import Gallery, Wanted
from worker.wire.reading import BadMessage, parsed, read, shaped

PRINTABLE = "^[^\x00-\x1f\x7f]*$"
Name = Annotated[str, msgspec.Meta(max_length=255, pattern=PRINTABLE)]
Key = Annotated[str, msgspec.Meta(max_length=270, pattern=PRINTABLE)]  # name, #, ten digits
Place = Annotated[str, msgspec.Meta(max_length=2048, pattern=PRINTABLE)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Galleries = Annotated[str, msgspec.Meta(max_length=256 * 1024)]


class _GalleryEntry(msgspec.Struct, frozen=True):
    """Mirrors and signatures are not ours yet; a gallery with them is read without."""

    url: Place = ""
    name: Name = ""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which backend, and from where: what install and upgrade have in common."""

    backend: Name
    backend_galleries: Galleries = ""  # a *string* that contains JSON
    uri: Place = ""
    name: Name = ""
    alias: Name = ""
    replica_index: Index = 0
    op_id: Name = ""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        request = read(payload, cls)
        plain_name("backend", request.backend)
        for field, value in (("name", request.name), ("alias", request.alias)):
            if value:
                plain_name(field, value)
        return request

    def wanted(self) -> Wanted:
        """The same in the words of the machine; a gallery list that is none is BadMessage."""
        return Wanted(
            backend=self.backend,
            galleries=tuple(galleries(self.backend_galleries)),
            uri=self.uri,
            name=self.name,
            alias=self.alias,
        )


class InstallRequest(Artifact, frozen=True, kw_only=True, omit_defaults=True):
    """Have the backend on disk, and a process of it running for this model and slot."""

    model_id: Name = ""
    force: bool = False

    @property
    def key(self) -> str:
        return f"{self.model_id or self.backend}#{self.replica_index}"


class UpgradeRequest(Artifact, frozen=True, kw_only=True, omit_defaults=True):
    """Stop every process of the backend, fetch it anew, start none."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Stop what `backend` means: a backend, a model or one process key; empty: everything."""

    backend: Key = ""
    force: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        # Zero bytes are what old managers sent, `null` what Go makes of nothing
        body = parsed(payload) if payload else None
        return cls() if body is None else shaped(body, cls)


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Stop the backend's processes and remove its files."""

    backend: Name

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        request = read(payload, cls)
        plain_name("backend", request.backend)
        return request


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Give up the download of this operation."""

    op_id: Name

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return read(payload, cls)


class UnloadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Free the memory of the process at `address`."""

    model_name: Name = ""
    address: Place = ""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return read(payload, cls)


class ModelStopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Stop exactly the process with this key at this (loopback) address."""

    model_name: Name = ""
    process_key: Key = ""
    expected_address: Place = ""
    force: bool = False
    config_revision: Name = ""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return read(payload, cls)


class DeleteModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the model's files; what runs goes on."""

    model_name: Place = ""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return read(payload, cls)


def galleries(text: str) -> list[Gallery]:
    """Read a JSON list of galleries; an empty text is an empty list."""
    listed = parsed(text) if text else None
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise BadMessage("invalid request: the galleries are not a JSON list")
    entries = [shaped(entry, _GalleryEntry) for entry in listed]
    return [Gallery(name=entry.name, url=entry.url) for entry in entries]


def plain_name(field: str, value: str) -> None:
    """Refuse whatever could lead out of a directory."""
    if not value.strip():
        raise BadMessage(f"invalid request: {field} is empty")
    if value.startswith(".") or "/" in value or "\\" in value:
        raise BadMessage(f"invalid request: {field} {value!r} is a path, not a name")
