"""Rows for tests: plain functions, one fixed clock."""

from datetime import UTC, datetime
from typing import Any

from backendops.models import Operation, PendingBackendOp
from backendops.states import OUTSTANDING, OpState, Verb
from nodes.models import BackendNode, JoinToken, NodeModel
from nodes.states import ReplicaState
from nodes.wire import RegisterRequest
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.states import Cause

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GIB = 2**30


def make_token(**changes: Any) -> JoinToken:
    number = JoinToken.objects.count() + 1
    values: dict[str, Any] = {
        "name": f"token-{number}",
        "digest": f"{number:064x}",
        "prefix": "jt_",
        "created_at": NOW,
        "created_by": "tests",
    }
    return JoinToken.objects.create(**{**values, **changes})


def make_node(name: str = "gpu-1", **changes: Any) -> BackendNode:
    """An approved, healthy backend node that beat just now."""
    values: dict[str, Any] = {
        "name": name,
        "address": f"{name}.example:50051",
        "http_address": f"{name}.example:50050",
        "approved_at": NOW,
        "approved_by": "tests",
        "last_heartbeat": NOW,
        "liveness_changed_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return BackendNode.objects.create(**{**values, **changes})


def make_pending(name: str = "new-1", **changes: Any) -> BackendNode:
    return make_node(name, **{"approved_at": None, "approved_by": "", **changes})


def make_request(name: str = "gpu-1", **changes: Any) -> RegisterRequest:
    """What a worker on that machine sends; no boot id, as LocalAI's sends none."""
    values: dict[str, Any] = {
        "name": name,
        "address": f"{name}.example:50051",
        "http_address": f"{name}.example:50050",
    }
    return RegisterRequest(**{**values, **changes})


def make_replica(
    node: BackendNode, model: str = "llama", index: int = 0, **changes: Any
) -> NodeModel:
    """A loaded, idle replica."""
    values: dict[str, Any] = {
        "node": node,
        "model_name": model,
        "replica_index": index,
        "address": f"{node.name}.example:{50052 + index}",
        "state": ReplicaState.LOADED,
        "backend_type": "reference",
        "last_used": NOW,
        "last_confirmed_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return NodeModel.objects.create(**{**values, **changes})


def make_op(node: BackendNode, backend: str = "llama-cpp", **changes: Any) -> PendingBackendOp:
    """One node's share of an install, queued and due; no operation asks for it yet."""
    values: dict[str, Any] = {
        "node": node,
        "backend": backend,
        "verb": Verb.INSTALL,
        "state": OpState.QUEUED,
        "created_at": NOW,
        "changed_at": NOW,
        "due_at": NOW,
    }
    if changes.get("state") in (OpState.RUNNING, OpState.CANCELLING):
        values |= {"lease_until": NOW, "sent_at": NOW, "started_at": NOW, "claimed_by": "tests"}
    elif changes.get("state") not in (None, *OUTSTANDING):
        values |= {"finished_at": NOW}
    return PendingBackendOp.objects.create(**{**values, **changes})


def make_operation(*ops: PendingBackendOp, **changes: Any) -> Operation:
    """What somebody asked for, consisting of these ops."""
    values: dict[str, Any] = {
        "verb": Verb.INSTALL,
        "backend": "llama-cpp",
        "target": "all nodes",
        "requested_by": "tests",
        "requested_at": NOW,
    }
    operation = Operation.objects.create(**{**values, **changes})
    for op in ops:  # in their order: `set` would write them in any
        operation.ops.add(op)
    return operation


def make_model(name: str = "llama", **changes: Any) -> ModelLoadInfo:
    """A model's definition on the reference backend."""
    values: dict[str, Any] = {
        "model_name": name,
        "backend": "reference",
        "options": {"Model": name},
        "config_revision": "r1",
        "created_at": NOW,
        "created_by": "tests",
        "updated_at": NOW,
        "updated_by": "tests",
    }
    return ModelLoadInfo.objects.create(**{**values, **changes})


def make_rule(model: str = "llama", **changes: Any) -> ModelSchedulingConfig:
    values: dict[str, Any] = {
        "model_name": model,
        "created_at": NOW,
        "updated_at": NOW,
        "updated_by": "tests",
    }
    return ModelSchedulingConfig.objects.create(**{**values, **changes})


def make_job(node: BackendNode, model: str = "llama", index: int = 0, **changes: Any) -> LoadJob:
    """A pending load of that slot; no replica row holds it yet."""
    values: dict[str, Any] = {
        "model_name": model,
        "config_revision": "r1",
        "backend": "reference",
        "node": node,
        "replica_index": index,
        "cause": Cause.FLOOR,
        "requested_by": "tests",
        "created_at": NOW,
        "changed_at": NOW,
        "due_at": NOW,
    }
    return LoadJob.objects.create(**{**values, **changes})
