"""What workers answer. Whatever cannot be read is NodeRefused: no evidence of anything.

A reply in which the worker says no is a value like any other; the gateway turns it into words.
"""

from dataclasses import dataclass, field
from typing import Annotated, Self

import msgspec

from clustermgr.lib.errors import InvalidInput, NodeRefused
from clustermgr.lib.gojson import GoObject
from nodes.wire import codec
from nodes.wire.commands import ADDRESS, LOCATION, NAME, PROCESS_KEY, replica_index

MAX_WORDS = 2000  # characters of an error; workers append what a process printed last


def _error(given: GoObject) -> str:
    # Blank words are words: an error must not turn into an empty list because it prints badly
    return given.words("error", MAX_WORDS) or ("An unreadable error." if given.raw("error") else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReply:
    success: bool
    address: str = ""  # old workers tell none: they have one process, at the node's own address
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("backend.install"):
            given = codec.load(payload)
            return cls(
                success=given.flag("success"),
                address=given.text("address", ADDRESS),
                error=_error(given),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingReply:
    """To an upgrade or a delete; the processes were stopped even if it failed afterwards."""

    success: bool
    error: str = ""
    stopped_process_keys: tuple[str, ...] = ()
    reports_stopped_processes: bool = False  # False: an old worker, and the list means nothing

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("backend.upgrade or backend.delete"):
            given = codec.load(payload)
            return cls(
                success=given.flag("success"),
                error=_error(given),
                stopped_process_keys=given.texts("stopped_process_keys", PROCESS_KEY),
                reports_stopped_processes=given.flag("reports_stopped_processes"),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReply:
    """To model.unload and model.delete."""

    success: bool
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("model.unload or model.delete"):
            given = codec.load(payload)
            return cls(success=given.flag("success"), error=_error(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReply:
    """Not cancelled: it is past its download, or unknown, and `error` says which."""

    cancelled: bool
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("backend.cancel"):
            given = codec.load(payload)
            return cls(cancelled=given.flag("cancelled"), error=_error(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStopReply:
    """To the exact stop. No such process is a success: not matched, and terminated."""

    matched: bool
    freed: bool
    terminated: bool
    process_key: str
    address: str = ""
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("model.stop"):
            given = codec.load(payload)
            return cls(
                matched=given.flag("matched"),
                freed=given.flag("freed"),
                terminated=given.flag("terminated"),
                process_key=given.text("process_key", PROCESS_KEY),
                address=given.text("address", ADDRESS),
                error=_error(given),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledBackend:
    """One backend on a worker's disk."""

    name: str
    is_system: bool
    is_meta: bool  # stands for the one that fits the hardware
    installed_at: str = ""
    gallery_url: str = ""
    version: str = ""
    uri: str = ""
    digest: str = ""

    @classmethod
    def read(cls, given: GoObject) -> Self:
        name = given.text("name", NAME)
        if not name:
            raise InvalidInput("name is required.")
        return cls(
            name=name,
            is_system=given.flag("is_system"),
            is_meta=given.flag("is_meta"),
            installed_at=given.text("installed_at", NAME),
            gallery_url=given.text("gallery_url", LOCATION),
            version=given.text("version", NAME),
            uri=given.text("uri", LOCATION),
            digest=given.text("digest", NAME),
        )


_Name = Annotated[str, msgspec.Meta(max_length=NAME)]
_Location = Annotated[str, msgspec.Meta(max_length=LOCATION)]


class _PlainBackend(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME)]
    is_system: bool = False
    is_meta: bool = False
    installed_at: _Name = ""
    gallery_url: _Location = ""
    version: _Name = ""
    uri: _Location = ""
    digest: _Name = ""


class _PlainList(msgspec.Struct, forbid_unknown_fields=True):
    backends: list[_PlainBackend]


_PLAIN_LIST = msgspec.json.Decoder(_PlainList)


def _plainly(payload: bytes) -> tuple[InstalledBackend, ...] | None:
    """What workers usually send: known keys, no error, no letter that needs a second look."""
    if not payload.isascii() or b"\\" in payload or b"\x7f" in payload:
        return None
    try:
        told = _PLAIN_LIST.decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return tuple(InstalledBackend(**msgspec.structs.asdict(one)) for one in told.backends)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReply:
    """In any order; backends are judged by being missing here, so half a list is refused."""

    backends: tuple[InstalledBackend, ...]
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a list in microseconds if it is plain, tolerantly if it is not."""
        if (plain := _plainly(payload)) is not None:
            return cls(backends=plain)
        with codec.answering("backend.list"):
            given = codec.load(payload)
            error = _error(given)
            entries = [] if error else given.items("backends")  # null when there are none
            found = tuple(InstalledBackend.read(GoObject(entry)) for entry in entries)
            return cls(backends=found, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningModel:
    """One live backend process. Its address is the worker's loopback: do not compare it."""

    model_id: str
    replica_index: int
    address: str = field(default="", compare=False)

    @classmethod
    def read(cls, given: GoObject) -> Self:
        model = given.text("model_id", NAME)
        if not model:
            raise InvalidInput("model_id is required.")
        return cls(
            model_id=model,
            replica_index=replica_index(given),
            address=given.text("address", ADDRESS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningReply:
    """Rows are forgotten because they are missing here, so half a list is refused."""

    models: tuple[RunningModel, ...]
    error: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("models.running"):
            given = codec.load(payload)
            error = _error(given)
            entries = [] if error else given.items("models")
            found = tuple(RunningModel.read(GoObject(entry)) for entry in entries)
            return cls(models=found, error=error)


def decode_running(payload: bytes) -> tuple[RunningModel, ...]:
    """Read the reply to `models.running`; a worker that cannot tell has refused."""
    reply = RunningReply.decode(payload)
    if reply.error:
        raise NodeRefused(reply.error)
    return reply.models
