"""What the worker tells the manager over HTTP, and what it hears."""

from collections.abc import Mapping

import msgspec

from worker.wire.credentials import Credentials
from worker.wire.reading import shaped

PENDING = "pending"


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has and has free, in bytes; 0 or None: unknown."""

    total_vram: int = 0
    available_vram: int | None = None
    total_ram: int = 0
    available_ram: int = 0
    total_disk: int = 0
    available_disk: int = 0

    def beat(self) -> bytes:
        """The body of a heartbeat. Absent is not zero: a full disk has 0 bytes free."""
        told: dict[str, int] = {"available_ram": self.available_ram}
        if self.available_vram is not None:
            told["available_vram"] = self.available_vram
        if self.total_disk:
            told |= {"total_disk": self.total_disk, "available_disk": self.available_disk}
        return msgspec.json.encode(told)


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are. The token is in the body as well as in the header, as LocalAI wants it."""

    name: str
    address: str
    http_address: str
    boot_id: str  # another one after every start: what ran before is gone
    token: str = ""
    gpu_vendor: str = ""
    gpu_compute_capability: str = ""
    capability: str = ""
    arch: str = ""
    os: str = ""
    max_replicas_per_model: int = 1
    vram_budget: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)

    def body(self, readings: Readings) -> bytes:
        told = msgspec.structs.asdict(self) | msgspec.structs.asdict(readings)
        told["available_vram"] = readings.available_vram or 0
        told["labels"] = {
            **self.labels,
            "node.replica-slots": str(self.max_replicas_per_model),
        }
        return msgspec.json.encode({key: value for key, value in told.items() if value != ""})


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What we are known by, and whether somebody let us in."""

    id: str
    status: str = ""
    nats_jwt: str = ""
    nats_user_seed: str = ""
    heartbeat_interval: float = 0.0  # seconds; 0: as we like
    ask_again_after: float = 0.0  # seconds, while we are pending; 0: as we like

    @property
    def credentials(self) -> Credentials | None:
        if not (self.nats_jwt and self.nats_user_seed):
            return None
        return Credentials(jwt=self.nats_jwt, seed=self.nats_user_seed)


class BeatHeard(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_interval: float = 0.0


def registered(body: object) -> Registered:
    return shaped(body, Registered)


def beat_heard(body: object) -> BeatHeard:
    return shaped(body, BeatHeard)
