"""Shapes between us and the workers, LocalAI's own; nodes.wire does the reading."""

from typing import Any

from rest_framework import serializers

from nodes.api.fields import ByteCount
from nodes.states import NodeType, ReplicaState


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
    arch = serializers.CharField(max_length=32, required=False, allow_blank=True)
    os = serializers.CharField(max_length=32, required=False, allow_blank=True)
    boot_id = serializers.CharField(max_length=64, required=False, allow_blank=True)


class RegisterOut(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    node_type = serializers.CharField()
    status = serializers.CharField()
    created_at = serializers.DateTimeField()
    nats_jwt = serializers.CharField(required=False)
    nats_user_seed = serializers.CharField(required=False)
    ask_again_after = serializers.FloatField(required=False, help_text="Seconds, while pending.")


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
    last_used = serializers.DateTimeField(allow_null=True)
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
