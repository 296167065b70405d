"""What the worker answers and tells. Fields without a default are always on the wire."""

import msgspec


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be sent."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class InstallReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    success: bool
    address: str = ""
    error: str = ""


class StoppingReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """To an upgrade or a delete; what was stopped was stopped even if it failed afterwards."""

    success: bool
    error: str = ""
    stopped_process_keys: tuple[str, ...] = ()
    reports_stopped_processes: bool = False


class PlainReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """To model.unload and model.delete."""

    success: bool
    error: str = ""


class CancelReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    cancelled: bool
    error: str = ""


class ModelStopReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    matched: bool
    freed: bool
    terminated: bool
    process_key: str
    address: str = ""
    error: str = ""


class ListedBackend(Reply, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    is_system: bool
    is_meta: bool
    installed_at: str = ""
    gallery_url: str = ""
    version: str = ""
    uri: str = ""
    digest: str = ""


class ListReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    backends: tuple[ListedBackend, ...]
    error: str = ""


class RunningModel(Reply, frozen=True, kw_only=True, omit_defaults=True):
    model_id: str
    replica_index: int
    address: str = ""


class RunningReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    models: tuple[RunningModel, ...]
    error: str = ""


class Progress(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """One tick of an install or an upgrade."""

    op_id: str
    node_id: str
    backend: str
    percentage: float
    file_name: str = ""
    current: str = ""
    total: str = ""
    phase: str = ""
    seq: int = 0
