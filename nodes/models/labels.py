"""What is said about a machine, and by whom."""

from django.db import models
from django.db.models import Q

from nodes.models.constraints import known
from nodes.models.node import BackendNode
from nodes.querysets import NodeLabelQuerySet
from nodes.states import LabelSource, TaintEffect


class NodeLabel(models.Model):
    """One label as one owner set it; the effective value is the strongest owner's."""

    node = models.ForeignKey(BackendNode, on_delete=models.CASCADE, related_name="label_rows")
    key = models.CharField(max_length=128)
    value = models.CharField(max_length=255, blank=True)
    source = models.CharField(max_length=16, choices=LabelSource)

    objects = NodeLabelQuerySet.as_manager()

    class Meta:
        verbose_name = "label"
        ordering = ["key"]
        constraints = [
            known("label_source_known", "source", LabelSource.values),
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
            known("taint_effect_known", "effect", TaintEffect.values),
            models.CheckConstraint(name="taint_key_not_empty", condition=~Q(key="")),
            models.UniqueConstraint(name="taint_once_per_node", fields=["node", "key"]),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"
