"""What the project itself remembers: API tokens, when each tick last ran, who was rung for."""

from django.conf import settings
from django.db import models


class ApiToken(models.Model):
    """A script's key. Only its digest is stored; the secret is shown once."""

    name = models.CharField(max_length=100, help_text="What uses it, for whoever revokes it.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=12, editable=False, help_text="To recognise it by.")
    created_at = models.DateTimeField(editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API token"
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Tick(models.Model):
    """The last run of one beat entry: how we know that time still passes."""

    name = models.CharField(max_length=100, primary_key=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    runs = models.BigIntegerField(default=0)
    failures = models.BigIntegerField(default=0)
    last_error = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="tick_runs_not_negative", condition=models.Q(runs__gte=0)),
            models.CheckConstraint(
                name="tick_failures_not_negative", condition=models.Q(failures__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Bell(models.Model):
    """A tick that somebody rang for, and that has not begun since; lib/bells.py puts them up."""

    name = models.CharField(max_length=100, primary_key=True)

    def __str__(self) -> str:
        return self.name
