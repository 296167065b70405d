"""What one node can be asked, typed. Knows the wire, never a row."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from nodes import wire

RUNNING_MODELS_TIMEOUT = timedelta(seconds=10)


class Bus(Protocol):
    """Carries a request to whoever listens on `subject` and brings back the reply."""

    def request(self, subject: str, payload: bytes, *, timeout: timedelta) -> bytes: ...


@dataclass(frozen=True, slots=True)
class NodeGateway:
    bus: Bus

    def running_models(self, node_id: UUID) -> tuple[wire.RunningModel, ...]:
        """The backend processes alive on the node; raises rather than guess an empty list."""
        reply = self.bus.request(
            wire.running_models_subject(node_id),
            wire.RUNNING_MODELS_REQUEST,
            timeout=RUNNING_MODELS_TIMEOUT,
        )
        return wire.decode_running(reply)
