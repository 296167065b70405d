"""What exists: machines, their labels, what runs on them, who let them in, what happened."""

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, Q

from clustermgr.lib.machine import Moves
from nodes.fields import UINT64_MAX, ByteCount
from nodes.querysets import BackendNodeQuerySet, NodeModelQuerySet
from nodes.states import (
    LIVENESS_MOVES,
    REPLICA_MOVES,
    Facts,
    LabelSource,
    Liveness,
    NodeStatus,
    NodeType,
    ReplicaState,
    Severity,
    TaintEffect,
    status_of,
)

BYTE_COLUMNS = (
    "total_vram",
    "available_vram",
    "reserved_vram",
    "total_ram",
    "available_ram",
    "total_disk",
    "available_disk",
    "vram_budget_bytes",
)


def _choices(name: str, field: str, values: list[str]) -> models.CheckConstraint:
    return models.CheckConstraint(name=name, condition=Q(**{f"{field}__in": values}))


class BackendNode(models.Model):
    """One machine. The row outlives its worker process, and its retirement."""

    MOVES: ClassVar[Moves] = LIVENESS_MOVES
    STATE_FIELD: ClassVar[str] = "liveness"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255, unique=True)
    node_type = models.CharField(max_length=32, choices=NodeType, default=NodeType.BACKEND)
    address = models.CharField(max_length=512, blank=True)
    http_address = models.CharField(max_length=512, blank=True)
    join_token = models.ForeignKey(
        "JoinToken", null=True, blank=True, on_delete=models.PROTECT, related_name="nodes"
    )

    # Hardware, as the worker reports it
    gpu_vendor = models.CharField(max_length=32, blank=True)
    gpu_compute_capability = models.CharField(max_length=16, blank=True)
    capability = models.CharField(max_length=64, blank=True)
    total_vram = ByteCount(default=0)
    available_vram = ByteCount(default=0, help_text="After the budget, before reservations.")
    reserved_vram = ByteCount(default=0)
    total_ram = ByteCount(default=0)
    available_ram = ByteCount(default=0)
    # Of the file system that holds the models. Total 0: unknown. Available 0 with a total: full.
    total_disk = ByteCount(default=0)
    available_disk = ByteCount(default=0)

    # Capacity: the worker proposes, an operator's override sticks
    max_replicas_per_model = models.PositiveIntegerField(default=1)
    max_replicas_per_model_manually_set = models.BooleanField(default=False)
    worker_max_replicas_per_model = models.PositiveIntegerField(default=1)
    vram_budget = models.CharField(max_length=32, blank=True)
    vram_budget_bytes = ByteCount(default=0)
    vram_budget_manually_set = models.BooleanField(default=False)
    worker_vram_budget = models.CharField(max_length=32, blank=True)

    # Facts, each with its owner (see states.py)
    liveness = models.CharField(max_length=16, choices=Liveness, default=Liveness.HEALTHY)
    liveness_changed_at = models.DateTimeField()
    liveness_reason = models.CharField(max_length=255, blank=True)
    last_heartbeat = models.DateTimeField(help_text="No index: it changes every ten seconds.")
    left_at = models.DateTimeField(null=True, blank=True, help_text="Stopped gracefully.")
    boot_id = models.CharField(max_length=64, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    approved_by = models.CharField(max_length=150, blank=True)
    cordoned_at = models.DateTimeField(null=True, blank=True)
    cordoned_by = models.CharField(max_length=150, blank=True)
    cordon_reason = models.CharField(max_length=255, blank=True)
    drain_requested_at = models.DateTimeField(null=True, blank=True)
    drain_requested_by = models.CharField(max_length=150, blank=True)
    # The worker's own drain is the first step of its shutdown and ends with its next
    # registration; an operator's ends when an operator says so.
    drain_by_worker = models.BooleanField(default=False)
    drain_reason = models.CharField(max_length=255, blank=True)
    drain_deadline = models.DateTimeField(null=True, blank=True)
    drained_at = models.DateTimeField(null=True, blank=True)
    quarantined_until = models.DateTimeField(null=True, blank=True)
    quarantine_reason = models.CharField(max_length=255, blank=True)
    recoveries = ArrayField(models.DateTimeField(), default=list, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)
    retired_by = models.CharField(max_length=150, blank=True)
    retire_reason = models.CharField(max_length=255, blank=True)

    version = models.PositiveBigIntegerField(default=1, help_text="Grows with every edit: ETag.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = BackendNodeQuerySet.as_manager()

    class Meta:
        verbose_name = "node"
        ordering = ["name"]
        permissions = [
            ("approve_backendnode", "Can approve nodes"),
            ("cordon_backendnode", "Can cordon and uncordon nodes"),
            ("drain_backendnode", "Can drain and resume nodes"),
            ("retire_backendnode", "Can retire and readmit nodes"),
            ("label_backendnode", "Can edit labels, taints and capacity overrides"),
        ]
        constraints = [
            _choices("node_type_known", "node_type", NodeType.values),
            _choices("node_liveness_known", "liveness", Liveness.values),
            models.CheckConstraint(name="node_name_not_empty", condition=~Q(name="")),
            models.CheckConstraint(
                name="node_backend_has_address",
                condition=~Q(node_type=NodeType.BACKEND) | ~Q(address=""),
            ),
            models.CheckConstraint(
                name="node_slots_positive",
                condition=Q(max_replicas_per_model__gte=1, worker_max_replicas_per_model__gte=1),
            ),
            models.CheckConstraint(
                name="node_bytes_are_uint64",
                condition=Q(
                    **{f"{name}__gte": 0 for name in BYTE_COLUMNS},
                    **{f"{name}__lte": UINT64_MAX for name in BYTE_COLUMNS},
                ),
            ),
            models.CheckConstraint(
                name="node_budget_within_total",
                condition=Q(vram_budget_bytes__lte=F("total_vram")) | Q(total_vram=0),
            ),
            models.CheckConstraint(
                name="node_approval_has_author",
                condition=Q(approved_at=None) | ~Q(approved_by=""),
            ),
            models.CheckConstraint(
                name="node_drain_facts_together",
                condition=Q(drain_requested_at__isnull=False)
                | Q(drain_deadline=None, drained_at=None, drain_by_worker=False),
            ),
            models.CheckConstraint(
                name="node_left_is_offline",
                condition=Q(left_at=None) | Q(liveness=Liveness.OFFLINE),
            ),
        ]
        indexes = [
            # lifecycle.finish_drains: the few that are being emptied
            models.Index(
                name="node_draining",
                fields=["drain_requested_at"],
                condition=Q(drain_requested_at__isnull=False, drained_at=None),
            ),
            # the admin's "waiting for approval"
            models.Index(
                name="node_pending",
                fields=["created_at"],
                condition=Q(approved_at=None, retired_at=None),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> NodeStatus:
        """What the operator reads: the strongest of the stored facts."""
        return status_of(
            Facts(
                approved=self.approved_at is not None,
                retired=self.retired_at is not None,
                draining=self.drain_requested_at is not None,
                liveness=Liveness(self.liveness),
            )
        )


class NodeLabel(models.Model):
    """One label as one owner set it; the effective value is the strongest owner's."""

    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="label_rows")
    key = models.CharField(max_length=128)
    value = models.CharField(max_length=255, blank=True)
    source = models.CharField(max_length=16, choices=LabelSource)

    class Meta:
        verbose_name = "label"
        ordering = ["key"]
        constraints = [
            _choices("label_source_known", "source", LabelSource.values),
            models.CheckConstraint(name="label_key_not_empty", condition=~Q(key="")),
            models.UniqueConstraint(name="label_once_per_owner", fields=["node", "key", "source"]),
        ]
        indexes = [models.Index(name="label_by_pair", fields=["key", "value"])]  # selectors

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class NodeTaint(models.Model):
    """A reason to keep work away that does not tolerate it."""

    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="taints")
    key = models.CharField(max_length=128)
    value = models.CharField(max_length=255, blank=True)
    effect = models.CharField(max_length=32, choices=TaintEffect, default=TaintEffect.NO_SCHEDULE)

    class Meta:
        verbose_name = "taint"
        ordering = ["key"]
        constraints = [
            _choices("taint_effect_known", "effect", TaintEffect.values),
            models.CheckConstraint(name="taint_key_not_empty", condition=~Q(key="")),
            models.UniqueConstraint(name="taint_once_per_node", fields=["node", "key"]),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


class NodeModel(models.Model):
    """One replica: a backend process serving one model in one slot of one node."""

    MOVES: ClassVar[Moves] = REPLICA_MOVES
    STATE_FIELD: ClassVar[str] = "state"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    node = models.ForeignKey(BackendNode, on_delete=models.PROTECT, related_name="replicas")
    model_name = models.CharField(max_length=255)
    replica_index = models.PositiveIntegerField(default=0)
    address = models.CharField(max_length=512, blank=True)
    state = models.CharField(max_length=16, choices=ReplicaState, default=ReplicaState.STAGING)
    in_flight = models.PositiveIntegerField(default=0)
    last_used = models.DateTimeField(null=True, blank=True)
    loading_by = models.CharField(max_length=64, blank=True)
    backend_type = models.CharField(max_length=128, blank=True)
    model_options = models.BinaryField(null=True, blank=True)
    config_revision = models.CharField(max_length=255, blank=True)
    effective_options_hash = models.CharField(max_length=128, blank=True)
    # Evidence of life, and its absence. On the row, so that it is the cluster's count and
    # survives whichever process made it.
    last_confirmed_at = models.DateTimeField(null=True, blank=True)
    misses = models.PositiveSmallIntegerField(default=0)
    # The worker registered again and did not say whether it is the same process: not routable
    # until `models.running` has confirmed the row.
    suspect_since = models.DateTimeField(null=True, blank=True)
    cleanup_error = models.TextField(blank=True)
    cleanup_attempts = models.PositiveIntegerField(default=0)
    cleanup_next_retry_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = NodeModelQuerySet.as_manager()

    class Meta:
        verbose_name = "replica"
        ordering = ["model_name", "replica_index"]
        constraints = [
            _choices("replica_state_known", "state", ReplicaState.values),
            models.CheckConstraint(name="replica_model_not_empty", condition=~Q(model_name="")),
            models.UniqueConstraint(
                name="replica_one_per_slot", fields=["node", "model_name", "replica_index"]
            ),
        ]
        indexes = [
            # the pick; nothing that changes per request may be in it, or updates stop being HOT
            models.Index(
                name="replica_serving",
                fields=["model_name"],
                condition=Q(state=ReplicaState.LOADED),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model_name}#{self.replica_index} on {self.node_id}"


class JoinToken(models.Model):
    """Permission to join, for whoever holds the secret; we hold only its digest."""

    name = models.CharField(max_length=100, unique=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=12, editable=False)
    created_at = models.DateTimeField(editable=False)
    created_by = models.CharField(max_length=150, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_by = models.CharField(max_length=150, blank=True, editable=False)
    max_nodes = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    # Empty: every type
    allowed_types = ArrayField(
        models.CharField(max_length=32, choices=NodeType), default=list, blank=True
    )
    labels = models.JSONField(default=dict, blank=True, help_text="Given to every node that joins.")
    auto_approve = models.BooleanField(default=False)
    one_machine = models.BooleanField(
        default=False, help_text="Binds to the first name that uses it: an identity of its own."
    )
    bound_name = models.CharField(max_length=255, blank=True, editable=False)
    from_environment = models.BooleanField(default=False, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "join token"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                name="join_token_types_known",
                condition=Q(allowed_types__contained_by=list(NodeType.values)),
            ),
            models.CheckConstraint(
                name="join_token_limit_positive",
                condition=Q(max_nodes=None) | Q(max_nodes__gte=1),
            ),
            models.UniqueConstraint(
                name="join_token_one_from_environment",
                fields=["from_environment"],
                condition=Q(from_environment=True, revoked_at=None),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ClusterEvent(models.Model):
    """What happened, to whom, by whom, and why; written with the change, never edited."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=64)  # "node.approved": noun.past-participle
    severity = models.CharField(max_length=16, choices=Severity, default=Severity.INFO)
    # No cascade: the event outlives its node
    node = models.ForeignKey(
        BackendNode, null=True, on_delete=models.SET_NULL, related_name="events"
    )
    subject = models.CharField(max_length=255)  # the name, readable when the row is gone
    actor = models.CharField(max_length=150)
    reason = models.TextField(blank=True)
    before = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    after = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    request_id = models.CharField(max_length=64, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = "event"
        ordering = ["-id"]
        constraints = [
            _choices("event_severity_known", "severity", Severity.values),
            models.CheckConstraint(name="event_has_actor", condition=~Q(actor="")),
        ]
        indexes = [
            models.Index(name="event_of_node", fields=["node", "-id"]),
            # the attention list
            models.Index(
                name="event_unacknowledged",
                fields=["-id"],
                condition=Q(severity=Severity.ATTENTION, acknowledged_at=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}"


class ClusterState(models.Model):
    """The one row of what the cluster as a whole remembers between two sweeps."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    last_sweep_at = models.DateTimeField(null=True)
    # Many fell silent at once, or we were away: nobody is declared dead until this clears.
    holding_since = models.DateTimeField(null=True)
    holding_reason = models.CharField(max_length=255, blank=True)
    # Token bucket: how many nodes may still be declared offline
    offline_allowance = models.FloatField(default=3.0)
    sweep_fence = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(name="state_one_row", condition=Q(id=1))]

    def __str__(self) -> str:
        return "cluster state"


class FailedAttempt(models.Model):
    """Refusals per source and minute, counted where every process sees them."""

    # "<what was refused>:<who asked>"; a name alone may have 255 bytes
    source = models.CharField(max_length=320, primary_key=True)
    window_started_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.source
