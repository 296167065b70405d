"""What should run, how it is loaded, the work of loading it, and why it is where it is."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from clustermgr.lib.machine import Moves
from nodes.fields import ByteCount
from nodes.models import BackendNode, NodeModel
from nodes.models.constraints import known
from scheduling.querysets import LoadJobQuerySet
from scheduling.states import ACTIVE, HELD, JOB_MOVES, Cause, JobState, RoutePolicy, Strategy

NAME = 255


class ModelLoadInfo(models.Model):
    """How a model is loaded. It outlives every replica, so that any can be brought back."""

    model_name = models.CharField(max_length=NAME, primary_key=True)
    backend = models.CharField(max_length=128)
    # Fields of the wire's ModelOptions by name ("ContextSize": 8192); checked by definitions.py
    options = models.JSONField(default=dict, blank=True)
    # What is known about its size; empty: unknown, and memory or disk is not looked at
    size_bytes = ByteCount(null=True, blank=True)
    vram_bytes = ByteCount(null=True, blank=True)
    # Models of one group are kept apart where possible
    concurrency_group = models.CharField(max_length=NAME, blank=True)
    # SHA-256 of backend and options: their meaning, not their formatting. Only replicas of this
    # revision may serve.
    config_revision = models.CharField(max_length=64)
    # Old replicas serve until new ones stand in for them, so that as many serve at any moment as
    # when it began
    rolling_since = models.DateTimeField(null=True, blank=True)
    rolling_replicas = models.PositiveIntegerField(default=0, db_default=0)
    version = models.PositiveBigIntegerField(default=1, help_text="Grows with every edit: ETag.")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=150)
    # A model that cannot load is not tried again every tick
    failures = models.PositiveIntegerField(default=0)  # in a row
    retry_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        verbose_name = "model"
        ordering = ["model_name"]
        permissions = [
            ("operate_model", "Can load, unload and move replicas"),
        ]
        constraints = [
            models.CheckConstraint(name="model_named", condition=~Q(model_name="")),
            models.CheckConstraint(name="model_has_backend", condition=~Q(backend="")),
            models.CheckConstraint(name="model_has_revision", condition=~Q(config_revision="")),
            models.CheckConstraint(
                name="model_rolls_some",
                condition=Q(rolling_since=None, rolling_replicas=0)
                | Q(rolling_since__isnull=False, rolling_replicas__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.model_name


class ModelSchedulingConfig(models.Model):
    """How many replicas of a model should run, and where."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    model_name = models.CharField(max_length=NAME, unique=True)
    # In the language of nodes.selectors; LocalAI's object of pairs is a special case of it
    selector = models.TextField(blank=True)
    tolerations = models.JSONField(default=list, blank=True)
    min_replicas = models.PositiveIntegerField(default=0)
    max_replicas = models.PositiveIntegerField(default=0)  # 0: no limit
    spread_all = models.BooleanField(default=False)
    pinned = models.BooleanField(default=False)  # never evicted, never scaled down for idleness
    priority = models.IntegerField(default=0)  # higher is placed first
    strategy = models.CharField(max_length=16, choices=Strategy, default=Strategy.SPREAD)
    route_policy = models.CharField(max_length=32, choices=RoutePolicy, blank=True, default="")
    balance_abs_threshold = models.PositiveIntegerField(default=0)
    balance_rel_threshold = models.FloatField(default=0)
    min_prefix_match = models.FloatField(default=0)
    # By time, not by ticks: since when it cannot be satisfied, and until when nobody tries
    unsatisfiable_since = models.DateTimeField(null=True, blank=True)
    unsatisfiable_until = models.DateTimeField(null=True, blank=True)
    unsatisfiable_reason = models.TextField(blank=True)
    # How often capacity had changed when that was found: the pause holds until it changes again
    capacity_seen = models.BigIntegerField(default=0, db_default=0)
    version = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=150)

    class Meta:
        verbose_name = "scheduling rule"
        ordering = ["model_name"]
        constraints = [
            known("rule_strategy_known", "strategy", Strategy.values),
            known("rule_policy_known", "route_policy", RoutePolicy.values),
            models.CheckConstraint(name="rule_named", condition=~Q(model_name="")),
            models.CheckConstraint(
                name="rule_min_within_max",
                condition=Q(max_replicas=0) | Q(min_replicas__lte=F("max_replicas")),
            ),
            models.CheckConstraint(
                name="rule_spread_is_alone",
                condition=Q(spread_all=False) | Q(min_replicas=0, max_replicas=0),
            ),
            models.CheckConstraint(
                name="rule_rel_threshold",
                condition=Q(balance_rel_threshold=0) | Q(balance_rel_threshold__gte=1),
            ),
            models.CheckConstraint(
                name="rule_prefix_match_is_share",
                condition=Q(min_prefix_match__gte=0, min_prefix_match__lte=1),
            ),
        ]

    def __str__(self) -> str:
        return self.model_name

    @property
    def managed(self) -> bool:
        """Whether anybody asked for a number of replicas."""
        return bool(self.min_replicas or self.max_replicas or self.spread_all)


class LoadJob(models.Model):
    """The work of bringing one replica up. Its replica row, slot and memory are its own."""

    MOVES: ClassVar[Moves] = JOB_MOVES
    STATE_FIELD: ClassVar[str] = "state"

    id = models.BigAutoField(primary_key=True)
    model_name = models.CharField(max_length=NAME)
    config_revision = models.CharField(max_length=64)
    backend = models.CharField(max_length=128)
    options = models.JSONField(default=dict, blank=True)  # as they were when it was decided
    node = models.ForeignKey(BackendNode, on_delete=models.PROTECT, related_name="load_jobs")
    replica_index = models.PositiveIntegerField()
    # The row that holds the slot; gone with it when the job fails
    replica = models.OneToOneField(
        NodeModel, null=True, blank=True, on_delete=models.SET_NULL, related_name="load_job"
    )
    # What goes when this one has come: a move
    replaces = models.ForeignKey(
        NodeModel, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    cause = models.CharField(max_length=16, choices=Cause)
    requested_by = models.CharField(max_length=150)

    state = models.CharField(max_length=16, choices=JobState, default=JobState.PENDING)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    # What it brought up was found dead then; an unload, a drain or a lost node is no death
    died_at = models.DateTimeField(null=True, blank=True)
    # What it brought up was stopped then: its memory is free from the node's next beat on
    freed_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)  # pending: not before this
    deadline_at = models.DateTimeField(null=True, blank=True)  # moves on with progress
    fence = models.PositiveBigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    claimed_by = models.CharField(max_length=64, blank=True)
    last_error = models.TextField(blank=True)
    address = models.CharField(max_length=512, blank=True)  # of its process, once there is one

    # Memory that is spoken for until the node's own report includes it
    reserved_vram = ByteCount(default=0)
    reservation_ended_at = models.DateTimeField(null=True, blank=True)

    phase = models.CharField(max_length=32, blank=True)
    percentage = models.FloatField(default=0)
    current_bytes = models.BigIntegerField(default=0)
    total_bytes = models.BigIntegerField(default=0)
    progress_at = models.DateTimeField(null=True, blank=True)

    objects = LoadJobQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            known("job_state_known", "state", JobState.values),
            known("job_cause_known", "cause", Cause.values),
            models.UniqueConstraint(
                name="job_one_per_slot",
                fields=["node", "model_name", "replica_index"],
                condition=Q(state__in=ACTIVE),
            ),
            models.CheckConstraint(
                name="job_pending_has_due_time",
                condition=~Q(state=JobState.PENDING) | Q(due_at__isnull=False),
            ),
            models.CheckConstraint(
                name="job_held_has_lease",
                condition=~Q(state__in=HELD) | Q(lease_until__isnull=False),
            ),
            models.CheckConstraint(
                name="job_finished_has_time",
                condition=Q(state__in=ACTIVE) | Q(finished_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(name="job_active", fields=["due_at"], condition=Q(state__in=ACTIVE)),
            models.Index(name="job_of_model", fields=["model_name", "-id"]),
            models.Index(name="job_age", fields=["finished_at"]),
            models.Index(
                name="job_reservations",
                fields=["node"],
                condition=Q(reservation_ended_at=None),
            ),
            models.Index(
                name="job_freed", fields=["freed_at"], condition=Q(freed_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model_name}#{self.replica_index} on {self.node_id}"


class PlacementDecision(models.Model):
    """Why a replica was put where it is, or nowhere: each node's verdict in words."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    model_name = models.CharField(max_length=NAME)
    config_revision = models.CharField(max_length=64, blank=True)
    cause = models.CharField(max_length=16, choices=Cause)
    # Where to; empty: nowhere
    node = models.ForeignKey(
        BackendNode, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    replica_index = models.PositiveIntegerField(null=True, blank=True)
    job = models.ForeignKey(
        LoadJob, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions"
    )
    summary = models.TextField()  # one sentence
    smallest_fix = models.TextField(blank=True)  # what would make it fit
    verdicts = models.JSONField(default=list)  # [{"node", "name", "fits", "why", "score"}]

    class Meta:
        ordering = ["-id"]
        constraints = [known("decision_cause_known", "cause", Cause.values)]
        indexes = [
            models.Index(name="decision_of_model", fields=["model_name", "-id"]),
            models.Index(name="decision_age", fields=["at"]),
        ]

    def __str__(self) -> str:
        return f"{self.model_name}: {self.summary}"


class RouteLease(models.Model):
    """One request's claim on one replica. Who never comes back is forgotten at `expires_at`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    replica = models.ForeignKey(NodeModel, on_delete=models.CASCADE, related_name="leases")
    holder = models.CharField(max_length=150)
    granted_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # no index: a renewal would stop being a HOT update

    class Meta:
        verbose_name = "lease"
        ordering = ["granted_at"]
        permissions = [("request_route", "Can ask for a replica and hold it")]

    def __str__(self) -> str:
        return f"{self.holder} on {self.replica_id}"


class StrayProcess(models.Model):
    """A process that runs on a node and belongs to no replica; first seen when."""

    id = models.BigAutoField(primary_key=True)
    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="+")
    model_name = models.CharField(max_length=NAME)  # or its backend's name
    replica_index = models.PositiveIntegerField()
    address = models.CharField(max_length=512)  # as the worker itself knows it
    first_seen_at = models.DateTimeField()
    last_error = models.TextField(blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)  # somebody is at it until then

    class Meta:
        verbose_name = "stray process"
        verbose_name_plural = "stray processes"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                name="stray_once", fields=["node", "model_name", "replica_index", "address"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.model_name}#{self.replica_index} on {self.node_id}"


class RouteTally(models.Model):
    """What became of a model's requests in one minute, where prompts are remembered."""

    id = models.BigAutoField(primary_key=True)
    model_name = models.CharField(max_length=NAME)
    minute = models.DateTimeField()  # when it began
    # Only counted: what preferring would have done, while requests were sent in turn
    shadow = models.BooleanField(default=False)
    picks = models.PositiveBigIntegerField(default=0)
    hits = models.PositiveBigIntegerField(default=0)  # to who has seen the prompt
    misses = models.PositiveBigIntegerField(default=0)  # nobody has seen enough of it
    pressure = models.PositiveBigIntegerField(default=0)  # somebody has, but was too busy
    lucky = models.PositiveBigIntegerField(default=0)  # in turn, and yet to who has seen it
    # Requests in flight on the chosen one beyond those on the idlest, summed
    regret = models.PositiveBigIntegerField(default=0)
    # The last request under pressure
    pressed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "route tallies"
        ordering = ["-minute", "model_name"]
        constraints = [
            models.UniqueConstraint(
                name="tally_once_a_minute", fields=["model_name", "minute", "shadow"]
            ),
            models.CheckConstraint(
                name="tally_adds_up",
                condition=Q(picks=F("hits") + F("misses") + F("pressure")),
            ),
        ]
        indexes = [models.Index(name="tally_minute", fields=["minute"])]

    def __str__(self) -> str:
        return f"{self.model_name} at {self.minute:%H:%M}"
