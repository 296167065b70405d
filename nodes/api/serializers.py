"""Shapes on the wire. `XxxIn` is what we accept, `XxxOut` what we answer; never one for both."""

from typing import Any

from rest_framework import serializers

from nodes.fields import UINT64_MAX
from nodes.models import BackendNode
from nodes.states import NodeStatus, NodeType, ReplicaState, Severity, TaintEffect


class ByteCount(serializers.IntegerField):
    """An unsigned 64-bit number, as workers count bytes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": UINT64_MAX, **kwargs})


class MessageOut(serializers.Serializer):
    message = serializers.CharField()


class ErrorOut(serializers.Serializer):
    """Every refusal: a code for programs, a sentence for people."""

    code = serializers.CharField()
    detail = serializers.CharField()


class WorkerErrorOut(serializers.Serializer):
    """LocalAI's shapes: an object, or plain text when the token itself was refused."""

    error = serializers.JSONField()


class RegisterIn(serializers.Serializer):
    """Documents POST /api/node/register; nodes.wire reads it, as tolerant as a Go program."""

    name = serializers.CharField(max_length=255)
    token = serializers.CharField()
    node_type = serializers.ChoiceField(NodeType.choices, required=False)
    address = serializers.CharField(max_length=512, required=False)
    http_address = serializers.CharField(max_length=512, required=False)
    total_vram = ByteCount(required=False)
    available_vram = ByteCount(required=False)
    total_ram = ByteCount(required=False)
    available_ram = ByteCount(required=False)
    total_disk = ByteCount(required=False)
    available_disk = ByteCount(required=False)
    gpu_vendor = serializers.CharField(max_length=32, required=False, allow_blank=True)
    gpu_compute_capability = serializers.CharField(max_length=16, required=False, allow_blank=True)
    capability = serializers.CharField(max_length=64, required=False, allow_blank=True)
    max_replicas_per_model = serializers.IntegerField(required=False, max_value=10_000)
    vram_budget = serializers.CharField(max_length=32, required=False, allow_blank=True)
    labels = serializers.DictField(
        child=serializers.CharField(max_length=255, allow_blank=True), required=False
    )
    boot_id = serializers.CharField(max_length=64, required=False, allow_blank=True)


class RegisterOut(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    node_type = serializers.CharField()
    status = serializers.CharField()
    created_at = serializers.DateTimeField()


class HeartbeatIn(serializers.Serializer):
    available_vram = ByteCount(required=False)
    total_vram = ByteCount(required=False)
    available_ram = ByteCount(required=False)
    available_disk = ByteCount(required=False)
    total_disk = ByteCount(required=False)
    gpu_vendor = serializers.CharField(required=False)


class ReplicaOut(serializers.Serializer):
    """LocalAI's NodeModel; its optional keys are left out when empty."""

    OPTIONAL = (
        *("loading_by", "backend_type", "config_revision", "effective_options_hash"),
        *("cleanup_error", "cleanup_attempts", "cleanup_next_retry_at"),
    )

    id = serializers.UUIDField()
    node_id = serializers.UUIDField()
    model_name = serializers.CharField()
    replica_index = serializers.IntegerField()
    address = serializers.CharField()
    state = serializers.ChoiceField(ReplicaState.choices)
    in_flight = serializers.IntegerField()
    last_used = serializers.DateTimeField()
    loading_by = serializers.CharField(required=False)
    backend_type = serializers.CharField(required=False)
    config_revision = serializers.CharField(required=False)
    effective_options_hash = serializers.CharField(required=False)
    cleanup_error = serializers.CharField(required=False)
    cleanup_attempts = serializers.IntegerField(required=False)
    cleanup_next_retry_at = serializers.DateTimeField(required=False)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        return {key: value for key, value in shown.items() if value or key not in self.OPTIONAL}


class TaintOut(serializers.Serializer):
    key = serializers.CharField(max_length=128)
    value = serializers.CharField(max_length=255, allow_blank=True, default="")
    effect = serializers.ChoiceField(TaintEffect.choices, default=TaintEffect.NO_SCHEDULE)


class NodeOut(serializers.Serializer):
    """LocalAI's node with its extras, then what only we know."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    node_type = serializers.ChoiceField(NodeType.choices)
    address = serializers.CharField()
    http_address = serializers.CharField()
    status = serializers.ChoiceField(NodeStatus.choices)
    total_vram = ByteCount()
    available_vram = ByteCount()
    reserved_vram = ByteCount()
    total_ram = ByteCount()
    available_ram = ByteCount()
    total_disk = ByteCount()
    available_disk = ByteCount()
    gpu_vendor = serializers.CharField()
    gpu_compute_capability = serializers.CharField()
    capability = serializers.CharField()
    max_replicas_per_model = serializers.IntegerField()
    max_replicas_per_model_manually_set = serializers.BooleanField()
    vram_budget = serializers.CharField()
    vram_budget_bytes = ByteCount()
    vram_budget_manually_set = serializers.BooleanField()
    last_heartbeat = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    model_count = serializers.IntegerField()
    in_flight_count = serializers.IntegerField()
    labels = serializers.SerializerMethodField()
    # Ours: the facts behind the status, each on its own
    liveness = serializers.CharField()
    liveness_reason = serializers.CharField()
    approved_at = serializers.DateTimeField()
    approved_by = serializers.CharField()
    cordoned_at = serializers.DateTimeField()
    cordoned_by = serializers.CharField()
    cordon_reason = serializers.CharField()
    drain_requested_at = serializers.DateTimeField()
    drain_requested_by = serializers.CharField()
    drain_deadline = serializers.DateTimeField()
    drained_at = serializers.DateTimeField()
    left_at = serializers.DateTimeField()
    quarantined_until = serializers.DateTimeField()
    quarantine_reason = serializers.CharField()
    retired_at = serializers.DateTimeField()
    retired_by = serializers.CharField()
    retire_reason = serializers.CharField()
    taints = serializers.SerializerMethodField()
    version = serializers.IntegerField()

    def get_labels(self, node: BackendNode) -> dict[str, str]:
        labels: dict[str, str] = self.context["labels"].get(node.pk, {})
        return labels

    def get_taints(self, node: BackendNode) -> list[dict[str, str]]:
        return [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in node.taints.all()
        ]


class ReasonIn(serializers.Serializer):
    reason = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")


class DrainIn(ReasonIn):
    deadline_seconds = serializers.IntegerField(
        min_value=1, max_value=7 * 24 * 3600, required=False, allow_null=True, default=None
    )


class ApprovedOut(MessageOut):
    id = serializers.UUIDField()
    name = serializers.CharField()
    node_type = serializers.CharField()
    status = serializers.CharField()


class LabelsField(serializers.DictField):
    child = serializers.CharField(max_length=255, allow_blank=True, trim_whitespace=False)


class SlotsIn(serializers.Serializer):
    value = serializers.IntegerField(min_value=1, max_value=1024)


class SlotsOut(serializers.Serializer):
    max_replicas_per_model = serializers.IntegerField()


class BudgetIn(serializers.Serializer):
    value = serializers.CharField(max_length=32, allow_blank=True)


class BudgetOut(serializers.Serializer):
    vram_budget = serializers.CharField()


class ResetOut(serializers.Serializer):
    reset = serializers.BooleanField()


class JoinTokenIn(serializers.Serializer):
    name = serializers.CharField(max_length=100)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    max_nodes = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=1_000_000
    )
    allowed_types = serializers.ListField(
        child=serializers.ChoiceField(NodeType.choices), required=False, default=list
    )
    labels = LabelsField(required=False, default=dict)
    auto_approve = serializers.BooleanField(required=False, default=False)
    one_machine = serializers.BooleanField(required=False, default=False)


class JoinTokenOut(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    expires_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField()
    revoked_by = serializers.CharField()
    max_nodes = serializers.IntegerField()
    allowed_types = serializers.ListField(child=serializers.CharField())
    labels = serializers.DictField(child=serializers.CharField())
    auto_approve = serializers.BooleanField()
    one_machine = serializers.BooleanField()
    bound_name = serializers.CharField()
    from_environment = serializers.BooleanField()
    last_used_at = serializers.DateTimeField()
    node_count = serializers.IntegerField()


class IssuedTokenOut(serializers.Serializer):
    token = JoinTokenOut()
    secret = serializers.CharField(help_text="Shown here and never again.")


class EventOut(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    severity = serializers.ChoiceField(Severity.choices)
    node_id = serializers.UUIDField()
    subject = serializers.CharField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()
    request_id = serializers.CharField()
    acknowledged_at = serializers.DateTimeField()
    acknowledged_by = serializers.CharField()


class ClusterOut(serializers.Serializer):
    nodes = serializers.DictField(child=serializers.IntegerField())
    holding_since = serializers.DateTimeField()
    holding_reason = serializers.CharField()
    attention = serializers.IntegerField()
