"""Which worker is held to the contract: one that runs elsewhere, or our own."""

import json
import os
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.contract_worker.bus import Bus
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.ours import OurWorker
from worker.rpc import backend_pb2 as pb
from worker.rpc import backend_pb2_grpc

PREFIX = "WORKER_CONTRACT_"


def told(name: str, default: str = "") -> str:
    return os.environ.get(PREFIX + name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    bus: Bus
    token: str
    http: str  # host:port of its probes and logs; empty: not told
    backend: str  # one it can install
    galleries: str  # what an install carries; empty: the worker's own list
    patience: float  # seconds an install may take
    process: OurWorker | None  # None: a foreign worker
    plane: ControlPlane | None  # that it registered with; None: it has a manager of its own
    asked: set[str] = field(
        default_factory=set
    )  # process keys; what is being stopped is not listed

    def install(self, model: str = "", replica: int = 0, **more: Any) -> dict[str, Any]:
        """Ask for a process; whatever is not given is as the target has it."""
        request = {
            "backend": self.backend,
            "model_id": model,
            "replica_index": replica,
            "backend_galleries": self.galleries,
            **more,
        }
        self.asked.add(f"{model or request['backend']}#{replica}")
        kept = {name: value for name, value in request.items() if value}
        return self.bus.ask("backend.install", kept, within=self.patience)

    def installed(self, model: str = "", replica: int = 0, **more: Any) -> str:
        """The address of a process that was asked for."""
        reply = self.install(model, replica, **more)
        assert reply["success"] is True, reply
        return str(reply["address"])

    def listed(self) -> dict[str, dict[str, Any]]:
        reply = self.bus.ask("backend.list", within=30.0)
        return {row["name"]: row for row in reply["backends"] or []}

    def stop_exactly(self, key: str, address: str, **more: Any) -> dict[str, Any]:
        request = {"model_name": "", "process_key": key, "expected_address": address, **more}
        return self.bus.ask("model.stop", request, within=30.0)

    def healthy(self, address: str) -> bool:
        """Whether a backend answers Health there, with OK."""
        bearer = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        with grpc.insecure_channel(address) as channel:
            stub = backend_pb2_grpc.BackendStub(channel)  # type: ignore[no-untyped-call]
            try:
                reply: pb.Reply = stub.Health(pb.HealthMessage(), timeout=5, metadata=bearer)
            except grpc.RpcError:
                return False
        return reply.message == b"OK"


def loopback(address: str) -> str:
    """What the worker itself calls a process that it told us `host:port` of."""
    return f"127.0.0.1:{address.rpartition(':')[2]}"


def told_galleries() -> str:
    text = told("GALLERIES")
    assert not text or isinstance(json.loads(text), list), f"{PREFIX}GALLERIES is no JSON list"
    return text
