"""What a node shows to the bus."""

from django.db import models
from django.db.models import F, Q

from nodes.models.node import BackendNode
from nodes.querysets import NodeCredentialQuerySet


class NodeCredential(models.Model):
    """A NATS user that was minted for a node. Its seed was told once and is kept nowhere."""

    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="credentials")
    public_key = models.CharField(max_length=56, unique=True)
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True)
    revoke_reason = models.CharField(max_length=255, blank=True)
    # When the server was told. Until then the credential still opens the door.
    cut_off_at = models.DateTimeField(null=True, blank=True)

    objects = NodeCredentialQuerySet.as_manager()

    class Meta:
        verbose_name = "node credential"
        ordering = ["-issued_at", "-id"]
        constraints = [
            models.CheckConstraint(
                name="credential_expires_later", condition=Q(expires_at__gt=F("issued_at"))
            ),
            models.CheckConstraint(
                name="credential_revoked_before_cut_off",
                condition=Q(cut_off_at=None) | Q(revoked_at__isnull=False),
            ),
        ]
        indexes = [
            # revocation.wanted: what the server must still refuse
            models.Index(
                name="credential_revoked",
                fields=["expires_at"],
                condition=Q(revoked_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.public_key[:9]}… of {self.node_id}"


class BusAccount(models.Model):
    """The one row about what NATS was told of our account: when last, and what stood in the way."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    told_at = models.DateTimeField(null=True)
    trouble_since = models.DateTimeField(null=True)
    trouble = models.TextField(blank=True)

    class Meta:
        constraints = [models.CheckConstraint(name="bus_account_one_row", condition=Q(id=1))]

    def __str__(self) -> str:
        return "bus account"
