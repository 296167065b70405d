"""What was asked, its share on each node, and what is installed where."""

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, Q

from backendops.querysets import NodeBackendQuerySet, OperationQuerySet, PendingBackendOpQuerySet
from backendops.states import ATTENTION, OP_MOVES, OUTSTANDING, OpState, Verb
from clustermgr.lib.machine import Moves
from nodes.models import BackendNode
from nodes.models.constraints import known

NAME = 255
LOCATION = 2048


class Operation(models.Model):
    """What somebody asked for, with everything that is needed to ask it again."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    verb = models.CharField(max_length=16, choices=Verb)
    backend = models.CharField(max_length=NAME)
    galleries = models.JSONField(default=list, blank=True)  # [{"name", "url"}]; none: the worker's
    uri = models.CharField(max_length=LOCATION, blank=True)
    name = models.CharField(max_length=NAME, blank=True)  # only with a uri
    alias = models.CharField(max_length=NAME, blank=True)
    # How the nodes were chosen, in words: "node gpu-1", "selector tier=fast", "all that have it"
    target = models.CharField(max_length=NAME)
    # Nodes that were meant and left out: [{"node", "name", "why"}]
    skipped = models.JSONField(default=list, blank=True)
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    reason = models.CharField(max_length=255, blank=True)
    retry_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries"
    )
    idempotency_key = models.CharField(max_length=NAME, null=True, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)  # of what came with the key
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    # The highest percentage ever shown: the bar of an operation never goes back
    progress_floor = models.FloatField(default=0)

    ops: models.ManyToManyField = models.ManyToManyField(
        "PendingBackendOp", through="OperationShare", related_name="operations"
    )

    objects = OperationQuerySet.as_manager()

    class Meta:
        ordering = ["-requested_at", "-id"]
        permissions = [
            ("request_operation", "Can install, upgrade, delete and stop backends"),
            ("cancel_operation", "Can cancel operations"),
            ("acknowledge_operation", "Can dismiss failures"),
        ]
        constraints = [
            known("operation_verb_known", "verb", Verb.values),
            models.CheckConstraint(name="operation_backend_not_empty", condition=~Q(backend="")),
            models.CheckConstraint(name="operation_has_author", condition=~Q(requested_by="")),
            models.CheckConstraint(
                name="operation_name_needs_uri",
                condition=~Q(uri="") | Q(name="", alias=""),
            ),
            models.UniqueConstraint(
                name="operation_once_per_key", fields=["requested_by", "idempotency_key"]
            ),
        ]
        indexes = [
            # the history, newest first, without counting it
            models.Index(name="operation_newest", fields=["-requested_at", "-id"]),
            models.Index(name="operation_of_backend", fields=["backend", "-requested_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.backend}"


class PendingBackendOp(models.Model):
    """One node's share of an order. The queue is this table; there is no other."""

    MOVES: ClassVar[Moves] = OP_MOVES
    STATE_FIELD: ClassVar[str] = "state"

    id = models.BigAutoField(primary_key=True)
    # op_of_node begins with it: an index of its own would only cost
    node = models.ForeignKey(
        BackendNode, on_delete=models.PROTECT, related_name="backend_ops", db_index=False
    )
    backend = models.CharField(max_length=NAME)
    verb = models.CharField(max_length=16, choices=Verb)
    galleries = models.JSONField(default=list, blank=True)
    uri = models.CharField(max_length=LOCATION, blank=True)
    name = models.CharField(max_length=NAME, blank=True)
    alias = models.CharField(max_length=NAME, blank=True)

    state = models.CharField(max_length=16, choices=OpState, default=OpState.QUEUED)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)  # of the current or last attempt
    finished_at = models.DateTimeField(null=True, blank=True)
    # QUEUED, FAILED: not before this. UNCONFIRMED, CANCELLING: look at the node then.
    due_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)  # that failed; a timeout is none
    last_error = models.TextField(blank=True)
    note = models.CharField(max_length=500, blank=True)  # what the operator should know now

    # Who holds it. Every claim has a higher fence, and every write names the one it was made
    # under, so whoever was paused for too long changes nothing.
    fence = models.PositiveBigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    claimed_by = models.CharField(max_length=64, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)  # from here on the node may be at it
    # What the node is told to call it. A new one for each attempt, the same when we ask again
    # about one: a worker that remembers it does nothing twice.
    generation = models.PositiveIntegerField(default=1)
    give_up_at = models.DateTimeField(null=True, blank=True)  # unconfirmed: believed until then
    # (version, digest, installed_at) before it was sent: what must differ after an upgrade
    before = models.JSONField(default=dict, blank=True, encoder=DjangoJSONEncoder)
    # The same once it had succeeded; empty where nothing is installed by it
    after = models.JSONField(default=dict, blank=True, db_default={})

    # How far the node has come
    phase = models.CharField(max_length=32, blank=True)
    file_name = models.CharField(max_length=NAME, blank=True)
    current_bytes = models.BigIntegerField(default=0)
    total_bytes = models.BigIntegerField(default=0)
    percentage = models.FloatField(default=0)
    progress_seq = models.PositiveBigIntegerField(default=0)
    progress_at = models.DateTimeField(null=True, blank=True)
    rate = models.FloatField(default=0)  # bytes a second, smoothed; 0: unknown

    # Grows with every change of any op: what a stream has to send next
    change = models.BigIntegerField(default=0)

    objects = PendingBackendOpQuerySet.as_manager()

    class Meta:
        verbose_name = "dead letter"  # the only list of them that people see
        ordering = ["id"]
        constraints = [
            known("op_state_known", "state", OpState.values),
            known("op_verb_known", "verb", Verb.values),
            models.CheckConstraint(name="op_backend_not_empty", condition=~Q(backend="")),
            models.UniqueConstraint(
                name="op_one_outstanding",
                fields=["node", "backend"],
                condition=Q(state__in=OUTSTANDING),
            ),
            # Nothing is ever stuck: whatever is not over has a holder or a time to go on
            models.CheckConstraint(
                name="op_running_has_lease",
                condition=~Q(state=OpState.RUNNING) | Q(lease_until__isnull=False),
            ),
            models.CheckConstraint(
                name="op_waiting_has_due_time",
                condition=~Q(
                    state__in=[
                        OpState.QUEUED,
                        OpState.FAILED,
                        OpState.UNCONFIRMED,
                        OpState.CANCELLING,
                    ]
                )
                | Q(due_at__isnull=False),
            ),
            models.CheckConstraint(
                name="op_finished_has_time",
                condition=Q(state__in=OUTSTANDING) | Q(finished_at__isnull=False),
            ),
        ]
        indexes = [
            # the dispatcher, the reaper and every page about what goes on
            models.Index(
                name="op_outstanding", fields=["due_at"], condition=Q(state__in=OUTSTANDING)
            ),
            models.Index(
                name="op_attention", fields=["-changed_at"], condition=Q(state__in=ATTENTION)
            ),
            models.Index(name="op_of_node", fields=["node", "-id"]),
            models.Index(name="op_changes", fields=["change"]),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.backend} on {self.node_id}"

    @property
    def wire_id(self) -> str:
        """What the worker knows this attempt by; part of its progress subject."""
        return f"op-{self.pk}-{self.generation}"


class OperationShare(models.Model):
    """An op serves every operation that asked for it: the second asker joins the first."""

    # share_once begins with it: no index of its own
    operation = models.ForeignKey(
        Operation, on_delete=models.CASCADE, related_name="shares", db_index=False
    )
    op = models.ForeignKey(PendingBackendOp, on_delete=models.CASCADE, related_name="shares")

    class Meta:
        constraints = [
            models.UniqueConstraint(name="share_once", fields=["operation", "op"]),
        ]

    def __str__(self) -> str:
        return f"{self.operation_id}: {self.op_id}"


class NodeInventory(models.Model):
    """When a node last told what is on its disk, and why it did not since."""

    node = models.OneToOneField(
        BackendNode, primary_key=True, on_delete=models.CASCADE, related_name="inventory"
    )
    observed_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)  # of the last question; empty: it was answered

    class Meta:
        verbose_name_plural = "node inventories"

    def __str__(self) -> str:
        return f"inventory of {self.node_id}"


class NodeBackend(models.Model):
    """One backend on one node's disk, as the node told it."""

    id = models.BigAutoField(primary_key=True)
    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="backends")
    name = models.CharField(max_length=NAME)
    version = models.CharField(max_length=NAME, blank=True)
    digest = models.CharField(max_length=NAME, blank=True)
    uri = models.CharField(max_length=LOCATION, blank=True)
    gallery_url = models.CharField(max_length=LOCATION, blank=True)
    installed_at = models.CharField(max_length=NAME, blank=True)  # in the worker's words
    is_system = models.BooleanField(default=False)
    is_meta = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField()
    observed_at = models.DateTimeField()

    objects = NodeBackendQuerySet.as_manager()

    class Meta:
        verbose_name = "backend"
        ordering = ["name", "node__name"]
        constraints = [
            models.UniqueConstraint(name="node_backend_once", fields=["node", "name"]),
            models.CheckConstraint(name="node_backend_named", condition=~Q(name="")),
        ]
        indexes = [models.Index(name="node_backend_by_name", fields=["name"])]

    def __str__(self) -> str:
        return f"{self.name} on {self.node_id}"


class GalleryBackend(models.Model):
    """One entry of a gallery that we read: what could be installed, and in which version."""

    id = models.BigAutoField(primary_key=True)
    gallery = models.CharField(max_length=NAME)
    gallery_url = models.CharField(max_length=LOCATION)
    name = models.CharField(max_length=NAME)
    version = models.CharField(max_length=NAME, blank=True)
    digest = models.CharField(max_length=NAME, blank=True)
    uri = models.CharField(max_length=LOCATION, blank=True)
    alias = models.CharField(max_length=NAME, blank=True)
    description = models.TextField(blank=True)
    license = models.CharField(max_length=NAME, blank=True)
    icon = models.CharField(max_length=LOCATION, blank=True, default="", db_default="")
    urls = ArrayField(
        models.CharField(max_length=LOCATION), default=list, blank=True, db_default=[]
    )
    tags = ArrayField(models.CharField(max_length=NAME), default=list, blank=True)
    # capability -> concrete backend; not empty: a meta backend, which fits any hardware listed
    capabilities = models.JSONField(default=dict, blank=True)
    checked_at = models.DateTimeField()

    class Meta:
        verbose_name = "gallery entry"
        verbose_name_plural = "gallery entries"
        ordering = ["name", "gallery"]
        constraints = [
            models.UniqueConstraint(name="gallery_entry_once", fields=["gallery", "name"]),
        ]

    def __str__(self) -> str:
        return f"{self.gallery}@{self.name}"


class GalleryCheck(models.Model):
    """When a gallery was last read, and why not."""

    gallery = models.CharField(max_length=NAME, primary_key=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    tried_at = models.DateTimeField()
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["gallery"]
        constraints = [
            models.CheckConstraint(
                name="gallery_check_in_order",
                condition=Q(checked_at=None) | Q(tried_at__gte=F("checked_at")),
            )
        ]

    def __str__(self) -> str:
        return self.gallery
