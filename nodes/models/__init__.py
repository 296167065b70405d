"""What exists: machines, their labels, what runs on them, who let them in, what happened."""

from nodes.models.credential import BusAccount, NodeCredential
from nodes.models.joining import FailedAttempt, JoinToken
from nodes.models.labels import NodeLabel, NodeTaint
from nodes.models.memory import ClusterEvent, ClusterState
from nodes.models.node import BackendNode
from nodes.models.replica import NodeModel

__all__ = [
    "BackendNode",
    "BusAccount",
    "ClusterEvent",
    "ClusterState",
    "FailedAttempt",
    "JoinToken",
    "NodeCredential",
    "NodeLabel",
    "NodeModel",
    "NodeTaint",
]
