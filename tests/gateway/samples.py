"""What each golden file means, in our types.

A file holds the bytes of one message. A change there is a change of the protocol.
"""

from pathlib import Path
from typing import Protocol

from nodes.wire import (
    CancelReply,
    CancelRequest,
    DeleteModelRequest,
    DeleteRequest,
    Gallery,
    InstalledBackend,
    InstallProgress,
    InstallReply,
    InstallRequest,
    ListReply,
    ModelStopReply,
    ModelStopRequest,
    PlainReply,
    PrefixInvalidated,
    PrefixObserved,
    RunningModel,
    RunningReply,
    StoppingReply,
    StopRequest,
    UnloadRequest,
    UpgradeRequest,
    Verification,
)

NODE = "0b6f0000-0000-4000-8000-000000000000"
GOLDEN = Path(__file__).parent / "golden"


class Message(Protocol):
    def encode(self) -> bytes: ...

    @classmethod
    def decode(cls, payload: bytes) -> "Message": ...


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().removesuffix(b"\n")


PLAIN_GALLERY = Gallery(url="https://g", name="localai")
SIGNED_GALLERY = Gallery(
    url="oci://quay.io/g:v1",
    name='"quoted" & <odd>',
    mirrors=("https://m1", "https://m2"),
    verification=Verification(
        issuer="https://token.actions.githubusercontent.com",
        identity_regex="^https://github.com/mudler/.*$",
        not_before="2026-01-01T00:00:00Z",
    ),
)

# Both ways, byte for byte: what we send, and what our own worker will send.
OURS: dict[str, Message] = {
    "install.request": InstallRequest(
        backend="llama-cpp",
        model_id="qwen3",
        backend_galleries=(PLAIN_GALLERY,),
        replica_index=1,
        op_id="op-9",
    ),
    "install.request.least": InstallRequest(backend="llama-cpp"),
    "install.request.external": InstallRequest(
        backend="mine",
        backend_galleries=(PLAIN_GALLERY, SIGNED_GALLERY),
        uri="oci://quay.io/me/mine:latest",
        name="mine",
        alias="llama-cpp",
        force=True,
        op_id="op.with dots",
    ),
    "install.reply": InstallReply(success=True, address="10.0.0.7:50052"),
    "install.reply.failed": InstallReply(
        success=False, error='backend "x" not found after install attempt'
    ),
    "upgrade.request": UpgradeRequest(
        backend="llama-cpp", backend_galleries=(PLAIN_GALLERY,), replica_index=1, op_id="op-9"
    ),
    "upgrade.request.least": UpgradeRequest(backend="llama-cpp"),
    "upgrade.reply": StoppingReply(
        success=True,
        stopped_process_keys=("qwen3#0", "qwen3#1"),
        reports_stopped_processes=True,
    ),
    "upgrade.reply.failed": StoppingReply(
        success=False,
        error="no space left on device",
        stopped_process_keys=("qwen3#0",),
        reports_stopped_processes=True,
    ),
    "prefix.observe": PrefixObserved(
        model="qwen3", chain=(1, 2**64 - 1), node_id=NODE, replica=1, origin="5c1f"
    ),
    "prefix.invalidate": PrefixInvalidated(model="qwen3", node_id=NODE, replica=0, origin="5c1f"),
    "prefix.invalidate.node": PrefixInvalidated(model="qwen3", node_id=NODE, replica=-1),
    "progress": InstallProgress(
        op_id="op-9",
        node_id="0b6f0000-0000-4000-8000-000000000000",
        backend="llama-cpp",
        percentage=1.9,
        file_name="img",
        current="41.0 MiB",
        total="2.1 GiB",
        phase="downloading",
        seq=7,
    ),
    "cancel.request": CancelRequest(op_id="op-9"),
    "cancel.reply": CancelReply(cancelled=True),
    "cancel.reply.late": CancelReply(
        cancelled=False, error="operation op-9 is past its download and will finish"
    ),
    "stop.one": StopRequest(backend="qwen3#1"),
    "stop.one.forced": StopRequest(backend="llama-cpp", force=True),
    "stop.all": StopRequest(backend=""),
    "stop.all.forced": StopRequest(backend="", force=True),
    "delete.request": DeleteRequest(backend="llama-cpp"),
    "delete.reply": StoppingReply(
        success=True, stopped_process_keys=("qwen3#1",), reports_stopped_processes=True
    ),
    "list.reply": ListReply(
        backends=(
            InstalledBackend(name="llama-cpp", is_system=False, is_meta=True),
            InstalledBackend(
                name="cuda12-llama-cpp",
                is_system=False,
                is_meta=False,
                installed_at="2026-08-01T10:00:00Z",
                gallery_url="https://g",
                version="1.2.0",
                uri="oci://quay.io/go-skynet/local-ai-backends:latest-gpu-nvidia-cuda-12-llama-cpp",
                digest="sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            ),
        )
    ),
    "running.reply": RunningReply(
        models=(
            RunningModel(model_id="qwen3", replica_index=1, address="127.0.0.1:50052"),
            RunningModel(model_id="org/model#v2", replica_index=0),
        )
    ),
    "running.reply.idle": RunningReply(models=()),
    "model-stop.request": ModelStopRequest(
        model_name="qwen3", process_key="qwen3#1", expected_address="127.0.0.1:50052"
    ),
    "model-stop.request.forced": ModelStopRequest(
        model_name="qwen3",
        process_key="qwen3#1",
        expected_address="127.0.0.1:50052",
        force=True,
        config_revision="r7",
    ),
    "model-stop.reply": ModelStopReply(
        matched=True,
        freed=True,
        terminated=True,
        process_key="qwen3#1",
        address="127.0.0.1:50052",
    ),
    "model-stop.reply.unknown": ModelStopReply(
        matched=False, freed=False, terminated=True, process_key="qwen3#1"
    ),
    "model-stop.reply.mismatch": ModelStopReply(
        matched=True,
        freed=False,
        terminated=False,
        process_key="qwen3#1",
        address="127.0.0.1:50052",
        error="address mismatch: expected 10.0.0.7:50052, have 127.0.0.1:50052",
    ),
    "unload.request": UnloadRequest(model_name="qwen3", address="127.0.0.1:50052"),
    "unload.reply": PlainReply(success=True),
    "model-delete.request": DeleteModelRequest(model_name="qwen3"),
    "model-delete.reply.failed": PlainReply(success=False, error="model name is empty"),
}

# One way: what LocalAI's workers and managers, old and new, also send.
THEIRS: dict[str, Message] = {
    "theirs.install.reply.old": InstallReply(success=True),
    "theirs.install.reply.stderr": InstallReply(
        success=False,
        error="backend process died:\nggml_cuda_init: no CUDA-capable device\nexit status 1",
    ),
    "theirs.upgrade.reply.old": StoppingReply(success=True),
    "theirs.upgrade.reply.nothing-ran": StoppingReply(success=True, reports_stopped_processes=True),
    "theirs.delete.reply.unknown": StoppingReply(success=False, error='backend "x" not found'),
    "theirs.list.reply.empty": ListReply(backends=()),
    "theirs.list.reply.error": ListReply(backends=(), error="cannot read the backends directory"),
    "theirs.running.reply.null": RunningReply(models=()),
    "theirs.running.reply.admin-install": RunningReply(
        models=(RunningModel(model_id="llama-cpp", replica_index=0),)
    ),
    "theirs.model-stop.reply.free-failed": ModelStopReply(
        matched=True,
        freed=False,
        terminated=True,
        process_key="qwen3#1",
        address="127.0.0.1:50052",
        error="freeing process qwen3#1: context deadline exceeded",
    ),
    "theirs.model-stop.reply.bad-request": ModelStopReply(
        matched=False,
        freed=False,
        terminated=False,
        process_key="",
        error="invalid request: unexpected end of JSON input",
    ),
    "theirs.progress": InstallProgress(
        op_id="op-9",
        node_id="0b6f0000-0000-4000-8000-000000000000",
        backend="llama-cpp",
        percentage=1.9,
        file_name="img",
        current="41.0 MiB",
        total="2.1 GiB",
        phase="downloading",
    ),
    "theirs.progress.unknown-total": InstallProgress(
        op_id="op-9",
        node_id="0b6f0000-0000-4000-8000-000000000000",
        backend="llama-cpp",
        percentage=0,
        current="512 B",
    ),
    "theirs.prefix.observe": PrefixObserved(
        model="qwen3", chain=(9733541562738237613, 42), node_id=NODE, replica=0
    ),
    "theirs.prefix.invalidate.node": PrefixInvalidated(model="qwen3", node_id=NODE, replica=-1),
    "theirs.stop.all.empty-object": StopRequest(backend=""),
    "theirs.unload.request.arbitrary": UnloadRequest(model_name="qwen3"),
    "theirs.install.request.odd-case": InstallRequest(
        backend="llama-cpp", model_id="qwen3", replica_index=2
    ),
}
