"""Who may come in, and who tried without being allowed to."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from nodes.querysets import JoinTokenQuerySet
from nodes.states import NodeType


class JoinToken(models.Model):
    """Permission to join, for whoever holds the secret; we know it by its digest."""

    name = models.CharField(max_length=100, unique=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    # The secret itself, encrypted: a worker guards its logs and its backends with it
    sealed = models.BinaryField(null=True, editable=False)
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

    objects = JoinTokenQuerySet.as_manager()

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


class FailedAttempt(models.Model):
    """Refusals per source and minute, counted where every process sees them."""

    # "<what was refused>:<who asked>"; a name alone may have 255 bytes
    source = models.CharField(max_length=320, primary_key=True)
    window_started_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.source
