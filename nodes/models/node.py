"""A machine: its hardware, its capacity, and the facts that decide whether it works."""

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from clustermgr.lib.machine import Moves
from nodes.fields import UINT64_MAX, ByteCount
from nodes.models.constraints import known
from nodes.querysets import BackendNodeQuerySet
from nodes.states import LIVENESS_MOVES, Facts, Liveness, NodeStatus, NodeType, status_of

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
    arch = models.CharField(max_length=32, blank=True)
    os = models.CharField(max_length=32, blank=True)
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
    # Its worker is to exit once the node is empty, and was last told so; over when it says goodbye
    stop_ordered_at = models.DateTimeField(null=True, blank=True)
    stop_told_at = models.DateTimeField(null=True, blank=True)
    quarantined_until = models.DateTimeField(null=True, blank=True)
    quarantine_reason = models.CharField(max_length=255, blank=True)
    # From offline; newest first, only as many as it takes to call it flapping
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
            ("view_logs", "Can read and follow what backends print"),
        ]
        constraints = [
            known("node_type_known", "node_type", NodeType.values),
            known("node_liveness_known", "liveness", Liveness.values),
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
                | Q(
                    drain_deadline=None,
                    drained_at=None,
                    drain_by_worker=False,
                    stop_ordered_at=None,
                    stop_told_at=None,
                ),
            ),
            models.CheckConstraint(
                name="node_left_is_offline",
                condition=Q(left_at=None) | Q(liveness=Liveness.OFFLINE),
            ),
        ]
        indexes = [
            # draining.finish_drains: the few that are being emptied
            models.Index(
                name="node_draining",
                fields=["drain_requested_at"],
                condition=Q(drain_requested_at__isnull=False, drained_at=None),
            ),
            # draining.dismiss_workers: the few whose worker is to exit
            models.Index(
                name="node_stop_ordered",
                fields=["stop_ordered_at"],
                condition=Q(stop_ordered_at__isnull=False),
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
