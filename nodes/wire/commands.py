"""What a worker is asked to do. A worker that cannot read it refuses with InvalidInput."""

from dataclasses import dataclass
from typing import Self

import msgspec

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.gojson import GoObject
from nodes.wire import codec
from nodes.wire.processes import MAX_REPLICA
from nodes.wire.subjects import NOTHING

# In bytes; what we store is no longer either
NAME, ADDRESS, LOCATION = 255, 512, 2048
PROCESS_KEY = NAME + len("#") + len(str(MAX_REPLICA))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Who must have signed what a gallery offers."""

    issuer: str = ""
    issuer_regex: str = ""
    identity: str = ""
    identity_regex: str = ""
    not_before: str = ""

    @classmethod
    def read(cls, given: GoObject) -> Self:
        return cls(
            issuer=given.text("issuer", LOCATION),
            issuer_regex=given.text("issuer_regex", LOCATION),
            identity=given.text("identity", LOCATION),
            identity_regex=given.text("identity_regex", LOCATION),
            not_before=given.text("not_before", NAME),
        )


NOBODY = Verification()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """Where a worker looks for backends."""

    url: str
    name: str
    mirrors: tuple[str, ...] = ()
    verification: Verification | None = None

    @classmethod
    def read(cls, given: GoObject) -> Self:
        signed = Verification.read(GoObject(given.mapping("verification")))
        return cls(
            url=given.text("url", LOCATION),
            name=given.text("name", NAME),
            mirrors=given.texts("mirrors", LOCATION),
            verification=None if signed == NOBODY else signed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """Have the backend on disk, and a process of it running for this model and slot."""

    backend: str
    model_id: str = ""  # none: the process is known by the backend's name
    backend_galleries: tuple[Gallery, ...] = ()  # none: the worker's own
    uri: str = ""
    name: str = ""  # this and the alias only together with a uri
    alias: str = ""
    replica_index: int = 0
    force: bool = False  # how workers were told to upgrade before there was a subject for it
    op_id: str = ""  # none: no progress is published

    def encode(self) -> bytes:
        return _dump_doubly(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            backend=given.text("backend", NAME),
            model_id=given.text("model_id", NAME),
            backend_galleries=_galleries(given.raw("backend_galleries")),
            uri=given.text("uri", LOCATION),
            name=given.text("name", NAME),
            alias=given.text("alias", NAME),
            replica_index=replica_index(given),
            force=given.flag("force"),
            op_id=given.text("op_id", NAME),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRequest:
    """Stop every process of the backend, fetch it anew, start none."""

    backend: str
    backend_galleries: tuple[Gallery, ...] = ()
    uri: str = ""
    name: str = ""
    alias: str = ""
    replica_index: int = 0
    op_id: str = ""

    def encode(self) -> bytes:
        return _dump_doubly(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            backend=given.text("backend", NAME),
            backend_galleries=_galleries(given.raw("backend_galleries")),
            uri=given.text("uri", LOCATION),
            name=given.text("name", NAME),
            alias=given.text("alias", NAME),
            replica_index=replica_index(given),
            op_id=given.text("op_id", NAME),
        )


def _dump_doubly(request: InstallRequest | UpgradeRequest) -> bytes:
    """Galleries travel as a *string* that contains JSON."""
    body = codec.plain(request)
    if request.backend_galleries:
        body["backend_galleries"] = msgspec.json.encode(body["backend_galleries"]).decode()
    return msgspec.json.encode(body)


def _galleries(text: str) -> tuple[Gallery, ...]:
    listed = GoObject({"backend_galleries": codec.parse(text) if text else None})
    return tuple(Gallery.read(GoObject(entry)) for entry in listed.items("backend_galleries"))


def replica_index(given: GoObject) -> int:
    """The slot of a process, in the 31 bits that it has on the wire."""
    index = given.count("replica_index")
    if index > MAX_REPLICA:
        raise InvalidInput(f"replica_index must be at most {MAX_REPLICA}.")
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """Stop what `backend` means: a backend, a model or one process key; empty: everything."""

    backend: str
    force: bool = False  # without asking the process to free its memory first

    def encode(self) -> bytes:
        return codec.dump(self) if self.backend or self.force else NOTHING

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        if not payload or codec.parse(payload) is None:
            return cls(backend="")
        given = codec.load(payload)
        return cls(backend=given.text("backend", NAME), force=given.flag("force"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Give up the download of an install or an upgrade; what it has so far is kept."""

    op_id: str

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(op_id=codec.load(payload).text("op_id", NAME))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest:
    """Stop the backend's processes and remove its files."""

    backend: str

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(backend=codec.load(payload).text("backend", NAME))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadRequest:
    """Free the memory of the process at `address`; without one, a worker picks *any*."""

    model_name: str
    address: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            model_name=given.text("model_name", NAME), address=given.text("address", ADDRESS)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStopRequest:
    """Stop exactly the process with this key at this (loopback) address, and say so."""

    model_name: str
    process_key: str
    expected_address: str
    force: bool = False
    config_revision: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            model_name=given.text("model_name", NAME),
            process_key=given.text("process_key", PROCESS_KEY),
            expected_address=given.text("expected_address", ADDRESS),
            force=given.flag("force"),
            config_revision=given.text("config_revision", NAME),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteModelRequest:
    """Remove the model's files; its processes stay."""

    model_name: str

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(model_name=codec.load(payload).text("model_name", NAME))
