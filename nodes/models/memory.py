"""What happened, and what the cluster as a whole remembers."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KT

from nodes.models.constraints import known
from nodes.models.node import BackendNode
from nodes.states import Severity


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
            known("event_severity_known", "severity", Severity.values),
            models.CheckConstraint(name="event_has_actor", condition=~Q(actor="")),
        ]
        indexes = [
            models.Index(name="event_of_node", fields=["node", "-id"]),
            # the API's ?node=; events about machines that never got in have no node
            models.Index(name="event_about", fields=["subject", "-id"]),
            # what became of one order: an event may name the op that it is about
            models.Index(KT("after__op"), name="event_of_op", condition=Q(after__has_key="op")),
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
    # After an absence of ours: workers get that long to beat again. Empty while holding: the
    # silence itself is the reason, and its end is the end.
    holding_until = models.DateTimeField(null=True)
    holding_reason = models.CharField(max_length=255, blank=True)
    # Token bucket: how many nodes may still be declared offline
    offline_allowance = models.FloatField(default=3.0)
    sweep_fence = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(name="state_one_row", condition=Q(id=1))]

    def __str__(self) -> str:
        return "cluster state"
