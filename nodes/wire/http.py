"""What workers tell us over HTTP, and what we answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self
from uuid import UUID

import msgspec

from clustermgr.lib import gojson
from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.gojson import GoObject
from nodes.labelling import check_all

MAX_SLOTS = 10_000  # a machine that wants more is a typing error
BACKEND, AGENT = NODE_TYPES = ("backend", "agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """What a worker says about itself when it starts, and when it renews its credentials."""

    name: str
    node_type: str = BACKEND
    address: str = ""
    http_address: str = ""
    token: str = field(default="", repr=False)
    total_vram: int = 0
    available_vram: int = 0
    total_ram: int = 0
    available_ram: int = 0
    total_disk: int = 0
    available_disk: int = 0
    gpu_vendor: str = ""
    gpu_compute_capability: str = ""
    capability: str = ""
    max_replicas_per_model: int = 1
    vram_budget: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    arch: str = ""  # ours, like the two below: become labels
    os: str = ""
    boot_id: str = ""  # ours: tells a restart from a renewal; LocalAI's worker sends none

    @classmethod
    def decode(cls, body: Mapping[str, object]) -> Self:
        """Read a register body; refuse with the field's name what we could not store."""
        given = GoObject(body)
        request = cls(
            name=given.text("name", 255),
            node_type=given.text("node_type", 32) or BACKEND,
            address=given.text("address", 512),
            http_address=given.text("http_address", 512),
            token=given.raw("token"),
            total_vram=given.count("total_vram"),
            available_vram=given.count("available_vram"),
            total_ram=given.count("total_ram"),
            available_ram=given.count("available_ram"),
            total_disk=given.count("total_disk"),
            available_disk=given.count("available_disk"),
            gpu_vendor=given.text("gpu_vendor", 32),
            gpu_compute_capability=given.text("gpu_compute_capability", 16),
            capability=given.text("capability", 64),
            max_replicas_per_model=_slots(given.integer("max_replicas_per_model")),
            vram_budget=given.text("vram_budget", 32),
            labels=check_labels(given.mapping("labels")),
            arch=given.text("arch", 32),
            os=given.text("os", 32),
            boot_id=given.text("boot_id", 64),
        )
        _check_identity(request)
        return request


def check_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """Return `labels` as strings, or refuse the first that breaks a rule; Go reads null as ""."""
    return check_all({key: "" if value is None else value for key, value in labels.items()})


def _slots(number: int) -> int:
    if number > MAX_SLOTS:
        raise InvalidInput(f"max_replicas_per_model must be at most {MAX_SLOTS}.")
    return max(number, 1)


def _check_identity(request: RegisterRequest) -> None:
    if not request.name.strip():
        raise InvalidInput("name is required: it is what the node is known by.")
    if request.node_type not in NODE_TYPES:
        raise InvalidInput(f"node_type must be {' or '.join(NODE_TYPES)}.")
    if request.node_type == BACKEND and not request.address.strip():
        raise InvalidInput("address is required for a backend node.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReport:
    """What changed since the last beat. None: not told, do not touch; 0 is a reading."""

    available_vram: int | None = None
    total_vram: int | None = None
    available_ram: int | None = None
    available_disk: int | None = None
    total_disk: int | None = None
    gpu_vendor: str | None = None

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Read a heartbeat body in a microsecond if it is plain, tolerantly if it is not."""
        try:
            told = _PLAIN.decode(raw)
        except msgspec.MsgspecError:
            return cls.decode(_loosely(raw))
        return cls(**msgspec.structs.asdict(told))

    @classmethod
    def decode(cls, body: object) -> Self:
        """Read a heartbeat body; what makes no sense is left out, the beat itself counts."""
        if not isinstance(body, Mapping) or not body:
            return cls()
        given = GoObject(body)
        return cls(
            available_vram=given.reading("available_vram"),
            total_vram=given.reading("total_vram"),
            available_ram=given.reading("available_ram"),
            available_disk=given.reading("available_disk"),
            total_disk=given.reading("total_disk"),
            gpu_vendor=given.word("gpu_vendor", 32),
        )


_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None


class _PlainReport(msgspec.Struct, forbid_unknown_fields=True):
    """What every worker sends; anything else is read by `HeartbeatReport.decode`."""

    available_vram: _Bytes = None
    total_vram: _Bytes = None
    available_ram: _Bytes = None
    available_disk: _Bytes = None
    total_disk: _Bytes = None


_PLAIN = msgspec.json.Decoder(_PlainReport)


def _loosely(raw: bytes) -> object:
    try:
        return gojson.parse(raw)
    except InvalidInput:
        return {}


def register_reply(
    *,
    node_id: UUID,
    name: str,
    node_type: str,
    status: str,
    created_at: datetime,
    nats_jwt: str = "",
    nats_user_seed: str = "",
    ask_again_after: timedelta | None = None,
) -> dict[str, str | float]:
    """Encode the answer to a registration; credentials only when there are any.

    `ask_again_after` is ours: LocalAI's workers have a pace of their own.
    """
    pace = {"ask_again_after": ask_again_after.total_seconds()} if ask_again_after else {}
    return {
        "id": str(node_id),
        "name": name,
        "node_type": node_type,
        "status": status,
        "created_at": timestamp(created_at),
        **granted_json(jwt=nats_jwt, seed=nats_user_seed),
        **pace,
    }


def granted_json(*, jwt: str, seed: str) -> dict[str, str]:
    """A node's credentials as registration and approval tell them; nothing when it has none."""
    return {"nats_jwt": jwt, "nats_user_seed": seed} if jwt and seed else {}


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, as Go writes it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
