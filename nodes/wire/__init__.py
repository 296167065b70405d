"""The contract with workers: subjects, messages, bounds. Pure: bytes in, values out.

Workers are written in Go: keys match in any case, unknown keys are ignored, `null` is the same
as absent. What we *store* is bounded here, so that no later layer meets a value it cannot hold.
Both directions of every message are here, although a manager needs one: the golden files in
tests/gateway/golden prove them against each other, and against what workers really send.
"""

from nodes.wire.commands import (
    CancelRequest,
    DeleteModelRequest,
    DeleteRequest,
    Gallery,
    InstallRequest,
    ModelStopRequest,
    StopRequest,
    UnloadRequest,
    UpgradeRequest,
    Verification,
)
from nodes.wire.http import (
    AGENT,
    BACKEND,
    MAX_SLOTS,
    NODE_TYPES,
    HeartbeatReport,
    RegisterRequest,
    check_labels,
    granted_json,
    register_reply,
    timestamp,
)
from nodes.wire.prefixcache import PrefixInvalidated, PrefixObserved
from nodes.wire.processes import ProcessKey, loopback
from nodes.wire.progress import PHASES, InstallProgress
from nodes.wire.replies import (
    MAX_WORDS,
    CancelReply,
    InstalledBackend,
    InstallReply,
    ListReply,
    ModelStopReply,
    PlainReply,
    RunningModel,
    RunningReply,
    StoppingReply,
    decode_running,
)
from nodes.wire.subjects import (
    LIST_REQUEST,
    NOTHING,
    RUNNING_MODELS_REQUEST,
    SUBJECTS,
    Kind,
    Role,
    Subject,
    running_models_subject,
    sanitise,
)

__all__ = [
    "AGENT",
    "BACKEND",
    "LIST_REQUEST",
    "MAX_SLOTS",
    "MAX_WORDS",
    "NODE_TYPES",
    "NOTHING",
    "PHASES",
    "RUNNING_MODELS_REQUEST",
    "SUBJECTS",
    "CancelReply",
    "CancelRequest",
    "DeleteModelRequest",
    "DeleteRequest",
    "Gallery",
    "HeartbeatReport",
    "InstallProgress",
    "InstallReply",
    "InstallRequest",
    "InstalledBackend",
    "Kind",
    "ListReply",
    "ModelStopReply",
    "ModelStopRequest",
    "PlainReply",
    "PrefixInvalidated",
    "PrefixObserved",
    "ProcessKey",
    "RegisterRequest",
    "Role",
    "RunningModel",
    "RunningReply",
    "StopRequest",
    "StoppingReply",
    "Subject",
    "UnloadRequest",
    "UpgradeRequest",
    "Verification",
    "check_labels",
    "decode_running",
    "granted_json",
    "loopback",
    "register_reply",
    "running_models_subject",
    "sanitise",
    "timestamp",
]
