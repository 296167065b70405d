"""Shapes on the wire, for reading bodies and for the description of the API.

The bodies of models and rules are only described here: `definitions` and `rules` read them, and
refuse in sentences.
"""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from nodes.api.fields import ByteCount, Text, Whole
from nodes.states import ReplicaState, TaintEffect
from scheduling.api.planning_shapes import VerdictOut
from scheduling.states import Cause, Cutover, JobState, RoutePolicy, Strategy

OBJECT = {"type": "object", "additionalProperties": True}
SIZE = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string"}], "nullable": True}


@extend_schema_field(OBJECT)
class Anything(serializers.JSONField):
    """An object whose inside somebody else checks."""


@extend_schema_field(SIZE)
class Size(serializers.JSONField):
    """Bytes, or words like "4.1 GiB"."""


class Toleration(serializers.Serializer):
    key = Text(max_length=128, required=False, allow_null=True)
    value = Text(max_length=255, required=False, allow_null=True, allow_blank=True)
    effect = serializers.ChoiceField(TaintEffect.choices, required=False, allow_null=True)


@extend_schema_field({"oneOf": [OBJECT, {"type": "string"}], "nullable": True})
class Pairs(serializers.JSONField):
    """LocalAI's selector: an object of pairs, or that in a string."""


class SchedulingRuleIn(serializers.Serializer):
    model_name = Text(required=False, allow_null=True, allow_blank=True)
    node_selector = Pairs(required=False, allow_null=True)
    selector = Text(required=False, allow_null=True, allow_blank=True)
    min_replicas = Whole(required=False, allow_null=True)
    max_replicas = Whole(required=False, allow_null=True)
    spread_all = serializers.BooleanField(required=False, allow_null=True)
    route_policy = Text(required=False, allow_null=True, allow_blank=True)
    balance_abs_threshold = Whole(required=False, allow_null=True)
    balance_rel_threshold = serializers.FloatField(required=False, allow_null=True)
    min_prefix_match = serializers.FloatField(required=False, allow_null=True)
    tolerations = serializers.ListField(child=Anything(), required=False, allow_null=True)
    pinned = serializers.BooleanField(required=False, allow_null=True)
    priority = Whole(required=False, allow_null=True)
    strategy = Text(required=False, allow_null=True)


class SchedulingRuleOut(serializers.Serializer):
    """LocalAI's rule, then what only we know."""

    id = serializers.UUIDField()
    model_name = serializers.CharField()
    node_selector = serializers.CharField(required=False, help_text="A string holding JSON.")
    min_replicas = serializers.IntegerField()
    max_replicas = serializers.IntegerField()
    spread_all = serializers.BooleanField(required=False)
    route_policy = serializers.ChoiceField(RoutePolicy.values[1:], required=False)
    balance_abs_threshold = serializers.IntegerField(required=False)
    balance_rel_threshold = serializers.FloatField(required=False)
    min_prefix_match = serializers.FloatField(required=False)
    unsatisfiable_until = serializers.DateTimeField(required=False)
    unsatisfiable_ticks = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    selector = serializers.CharField()
    tolerations = Toleration(many=True)
    pinned = serializers.BooleanField()
    priority = serializers.IntegerField()
    strategy = serializers.ChoiceField(Strategy.choices)
    unsatisfiable_since = serializers.DateTimeField(allow_null=True)
    unsatisfiable_reason = serializers.CharField()
    matching_nodes = serializers.IntegerField()
    desired = serializers.IntegerField()
    actual = serializers.IntegerField()
    loading = serializers.IntegerField()
    outdated = serializers.IntegerField()
    why = serializers.CharField()
    version = serializers.IntegerField()
    updated_by = serializers.CharField()


class ModelIn(serializers.Serializer):
    name = Text(required=False)
    backend = Text(required=False)
    options = Anything(required=False)
    size = Size(required=False, allow_null=True)
    vram = Size(required=False, allow_null=True)
    concurrency_group = Text(required=False, allow_blank=True)


class ModelEditIn(ModelIn):
    cutover = serializers.ChoiceField(
        Cutover.choices,
        required=False,
        help_text="rolling: old replicas serve until new ones stand in for them.",
    )


class ImportIn(serializers.Serializer):
    """Either the list itself, or the same as YAML."""

    models = serializers.ListField(child=Anything(), required=False)
    yaml = Text(required=False, allow_blank=True, max_length=2**20)


class ModelOut(serializers.Serializer):
    name = serializers.CharField()
    backend = serializers.CharField()
    options = Anything()
    size_bytes = ByteCount(allow_null=True)
    vram_bytes = ByteCount(allow_null=True)
    concurrency_group = serializers.CharField()
    config_revision = serializers.CharField()
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    updated_at = serializers.DateTimeField()
    updated_by = serializers.CharField()
    failures = serializers.IntegerField()
    retry_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    rolling_since = serializers.DateTimeField(
        allow_null=True, help_text="Old replicas serve until new ones stand in for them."
    )
    desired = serializers.IntegerField()
    actual = serializers.IntegerField()
    loading = serializers.IntegerField()
    outdated = serializers.IntegerField(help_text="Replicas of an older revision, to be replaced.")
    unloading = serializers.IntegerField()
    why = serializers.CharField(help_text="Why it is not as wished for; empty where it is.")
    since = serializers.DateTimeField(allow_null=True)
    rule = SchedulingRuleOut(allow_null=True)


class ImportedOut(serializers.Serializer):
    created = serializers.ListField(child=serializers.CharField())
    edited = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    to_replace = serializers.IntegerField()


class DeletedOut(serializers.Serializer):
    message = serializers.CharField()
    unloading = serializers.IntegerField()


class ModelReplicaOut(serializers.Serializer):
    id = serializers.UUIDField()
    node_id = serializers.UUIDField()
    node_name = serializers.CharField()
    replica_index = serializers.IntegerField()
    state = serializers.ChoiceField(ReplicaState.choices)
    serving = serializers.BooleanField()
    in_flight = serializers.IntegerField()
    address = serializers.CharField()
    backend = serializers.CharField()
    config_revision = serializers.CharField()
    current = serializers.BooleanField()
    outdated_at = serializers.DateTimeField(allow_null=True)
    withdrawn_at = serializers.DateTimeField(allow_null=True)
    ejected_until = serializers.DateTimeField(allow_null=True)  # others are asked first until then
    last_used = serializers.DateTimeField(allow_null=True)
    last_confirmed_at = serializers.DateTimeField(allow_null=True)
    cleanup_error = serializers.CharField()
    created_at = serializers.DateTimeField()


class LoadJobOut(serializers.Serializer):
    id = serializers.IntegerField()
    model_name = serializers.CharField()
    config_revision = serializers.CharField()
    backend = serializers.CharField()
    node_id = serializers.UUIDField()
    node_name = serializers.CharField()
    replica_index = serializers.IntegerField()
    cause = serializers.ChoiceField(Cause.choices)
    requested_by = serializers.CharField()
    state = serializers.ChoiceField(JobState.choices)
    phase = serializers.CharField()
    percentage = serializers.FloatField()
    current_bytes = serializers.IntegerField()
    total_bytes = serializers.IntegerField()
    eta_seconds = serializers.FloatField(allow_null=True)
    reserved_vram = ByteCount()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    died_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()


class DecisionOut(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    cause = serializers.ChoiceField(Cause.choices)
    config_revision = serializers.CharField()
    node_id = serializers.UUIDField(allow_null=True)
    node_name = serializers.CharField(allow_null=True)
    replica_index = serializers.IntegerField(allow_null=True)
    job = serializers.IntegerField(allow_null=True)
    summary = serializers.CharField()
    smallest_fix = serializers.CharField()
    verdicts = VerdictOut(many=True)


class LoadStatusOut(serializers.Serializer):
    """LocalAI's answer to "is it there yet"."""

    model = serializers.CharField()
    state = serializers.ChoiceField(JobState.choices)
    node = serializers.CharField()
    progress = serializers.FloatField()
    bytes_sent = serializers.IntegerField()
    total_bytes = serializers.IntegerField()
    file_index = serializers.IntegerField()
    total_files = serializers.IntegerField()
    eta_seconds = serializers.IntegerField(required=False)


class CapacityOut(serializers.Serializer):
    value = serializers.CharField(allow_null=True)
    nodes = serializers.IntegerField()
    schedulable = serializers.IntegerField()
    replicas = serializers.IntegerField()
    slots_per_model = serializers.IntegerField()
    total_vram = serializers.IntegerField()
    free_vram = serializers.IntegerField()
    total_disk = serializers.IntegerField()
    free_disk = serializers.IntegerField()


class LoadIn(serializers.Serializer):
    node = Text(max_length=255, required=False, allow_blank=True, default="")


class UnloadIn(serializers.Serializer):
    node = Text(max_length=255, required=False, allow_blank=True, default="")
    replica_index = Whole(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    force = serializers.BooleanField(required=False, default=False)


class MoveIn(serializers.Serializer):
    node = Text(max_length=255)
    to = Text(max_length=255)
    replica_index = Whole(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)


class UnloadedOut(serializers.Serializer):
    message = serializers.CharField()
    count = serializers.IntegerField()


class ModelNameIn(serializers.Serializer):
    model_name = Text(max_length=255)
