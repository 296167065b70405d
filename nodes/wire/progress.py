"""How far an install or an upgrade has come. Best effort: the reply decides."""

import math
from dataclasses import dataclass
from typing import Self

from nodes.wire import codec
from nodes.wire.commands import NAME

PHASES = RESOLVING, DOWNLOADING, EXTRACTING, STARTING = (
    "resolving",
    "downloading",
    "extracting",
    "starting",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallProgress:
    """One tick; whatever number it came with, the percentage is one from 0 to 100."""

    op_id: str
    node_id: str
    backend: str
    percentage: float  # 0 as long as the total is unknown
    file_name: str = ""
    current: str = ""  # "412.0 MiB"
    total: str = ""
    phase: str = ""
    seq: int = 0  # ours, counted from 1: LocalAI's workers send none

    def __post_init__(self) -> None:
        sane = self.percentage if math.isfinite(self.percentage) else 0.0
        object.__setattr__(self, "percentage", min(max(sane, 0.0), 100.0))

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        with codec.answering("backend.install"):
            given = codec.load(payload)
            return cls(
                op_id=given.raw("op_id"),
                node_id=given.raw("node_id"),
                backend=given.text("backend", NAME),
                percentage=given.number("percentage"),
                file_name=given.words("file_name", NAME),
                current=given.words("current", 32),
                total=given.words("total", 32),
                phase=given.words("phase", 32),
                seq=given.count("seq"),
            )
