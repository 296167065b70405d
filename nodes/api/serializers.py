"""Shapes on the wire. `XxxIn` is what we accept, `XxxOut` what we answer; never one for both."""

from rest_framework import serializers

from nodes.api.fields import ByteCount, Text, Whole
from nodes.models import BackendNode
from nodes.states import NodeStatus, NodeType, Severity, TaintEffect
from nodes.wire import MAX_SLOTS


class MessageOut(serializers.Serializer):
    message = serializers.CharField()


class LocalAIErrorOut(serializers.Serializer):
    """The same once more, in the shape LocalAI's clients read."""

    code = serializers.IntegerField()
    message = serializers.CharField()
    type = serializers.CharField()


class ErrorOut(serializers.Serializer):
    """Every refusal: a code for programs, a sentence for people."""

    code = serializers.CharField()
    detail = serializers.CharField()
    error = LocalAIErrorOut()
    # DRF takes declared fields out of the class: its own `errors` stays what it was
    errors = serializers.JSONField(required=False)  # type: ignore[assignment]


class TaintOut(serializers.Serializer):
    key = Text(max_length=128)
    value = Text(max_length=255, allow_blank=True, default="")
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
    arch = serializers.CharField()
    os = serializers.CharField()
    liveness = serializers.CharField()
    liveness_reason = serializers.CharField()
    approved_at = serializers.DateTimeField(allow_null=True)
    approved_by = serializers.CharField()
    cordoned_at = serializers.DateTimeField(allow_null=True)
    cordoned_by = serializers.CharField()
    cordon_reason = serializers.CharField()
    drain_requested_at = serializers.DateTimeField(allow_null=True)
    drain_requested_by = serializers.CharField()
    drain_deadline = serializers.DateTimeField(allow_null=True)
    drained_at = serializers.DateTimeField(allow_null=True)
    stop_ordered_at = serializers.DateTimeField(allow_null=True)
    left_at = serializers.DateTimeField(allow_null=True)
    quarantined_until = serializers.DateTimeField(allow_null=True)
    quarantine_reason = serializers.CharField()
    retired_at = serializers.DateTimeField(allow_null=True)
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
    reason = Text(max_length=255, required=False, allow_blank=True, default="")


class DrainIn(ReasonIn):
    deadline_seconds = Whole(
        min_value=1, max_value=7 * 24 * 3600, required=False, allow_null=True, default=None
    )


class ApprovedOut(MessageOut):
    """The credentials come only when minting is on; they are told once."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    node_type = serializers.CharField()
    status = serializers.CharField()
    nats_jwt = serializers.CharField(required=False)
    nats_user_seed = serializers.CharField(required=False)


class LabelsField(serializers.DictField):
    """Bounds as labelling.check_all has them, which does the checking."""

    child = Text(max_length=255, allow_blank=True, trim_whitespace=False)


class SlotsIn(serializers.Serializer):
    value = Whole(min_value=1, max_value=MAX_SLOTS)


class SlotsOut(serializers.Serializer):
    max_replicas_per_model = serializers.IntegerField()


class BudgetIn(serializers.Serializer):
    value = Text(max_length=32, allow_blank=True)


class BudgetOut(serializers.Serializer):
    vram_budget = serializers.CharField()


class ResetOut(serializers.Serializer):
    reset = serializers.BooleanField()


class JoinTokenIn(serializers.Serializer):
    name = Text(max_length=100)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    max_nodes = Whole(
        required=False, allow_null=True, default=None, min_value=1, max_value=1_000_000
    )
    allowed_types = serializers.ListField(
        child=serializers.ChoiceField(NodeType.choices),
        max_length=len(NodeType),
        required=False,
        default=list,
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
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    revoked_by = serializers.CharField()
    max_nodes = serializers.IntegerField(allow_null=True)
    allowed_types = serializers.ListField(child=serializers.CharField())
    labels = serializers.DictField(child=serializers.CharField())
    auto_approve = serializers.BooleanField()
    one_machine = serializers.BooleanField()
    bound_name = serializers.CharField()
    from_environment = serializers.BooleanField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    node_count = serializers.IntegerField()


class IssuedTokenOut(serializers.Serializer):
    token = JoinTokenOut()
    secret = serializers.CharField(help_text="Shown here and never again.")


class EventOut(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    severity = serializers.ChoiceField(Severity.choices)
    node_id = serializers.UUIDField(allow_null=True)
    subject = serializers.CharField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()
    request_id = serializers.CharField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField()


class ClusterOut(serializers.Serializer):
    nodes = serializers.DictField(child=serializers.IntegerField())
    holding_since = serializers.DateTimeField(allow_null=True)
    holding_reason = serializers.CharField()
    attention = serializers.IntegerField()


class LogLineOut(serializers.Serializer):
    timestamp = serializers.CharField()
    stream = serializers.ChoiceField(["stdout", "stderr"])
    text = serializers.CharField()
