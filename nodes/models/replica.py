"""What runs on a machine."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from clustermgr.lib.machine import Moves
from nodes.models.constraints import known
from nodes.models.node import BackendNode
from nodes.querysets import NodeModelQuerySet
from nodes.states import REPLICA_MOVES, ReplicaState


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
    in_flight = models.PositiveIntegerField(default=0)  # the number of its leases, always
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
    missed_at = models.DateTimeField(null=True, blank=True)  # two looks at once are one miss
    # The worker registered again and did not say whether it is the same process: not routable
    # until `models.running` has confirmed the row.
    suspect_since = models.DateTimeField(null=True, blank=True)
    # Its model was edited since: it serves nobody, and is replaced
    outdated_at = models.DateTimeField(null=True, blank=True)
    # It gets no new requests: its node can be emptied of it, or what it was moved to serves
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    # Callers could not reach it: others are asked before it until then, longer each time
    ejected_until = models.DateTimeField(null=True, blank=True)
    ejections = models.PositiveSmallIntegerField(default=0, db_default=0)
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
            known("replica_state_known", "state", ReplicaState.values),
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
        return f"{self.process_key} on {self.node_id}"

    @property
    def process_key(self) -> str:
        """What its worker calls the process."""
        return f"{self.model_name}#{self.replica_index}"
