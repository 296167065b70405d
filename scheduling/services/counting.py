"""Capacity by label: slots and memory of the nodes that share a value."""

from dataclasses import dataclass

from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce

from nodes.labelling import check_key
from nodes.models import BackendNode, NodeModel
from nodes.services import labels


@dataclass(slots=True, kw_only=True)
class Capacity:
    """What the nodes with one value of a label have together; None: those without the label."""

    value: str | None
    nodes: int = 0
    schedulable: int = 0
    replicas: int = 0
    slots_per_model: int = 0  # how many replicas of one model fit
    total_vram: int = 0
    free_vram: int = 0
    total_disk: int = 0
    free_disk: int = 0


def by_label(key: str) -> list[Capacity]:
    """Three statements; only what may get something new counts as free."""
    check_key(key)
    held = NodeModel.objects.filter(node=OuterRef("pk")).order_by().values("node")
    taken = Coalesce(Subquery(held.annotate(n=Count("pk")).values("n")), 0)
    nodes = list(BackendNode.objects.approved().backends().online().annotate(taken=taken))
    usable = set(BackendNode.objects.schedulable().values_list("pk", flat=True))
    values = labels.effective([node.pk for node in nodes])
    groups: dict[str | None, Capacity] = {}
    for node in nodes:
        value = values[node.pk].get(key)
        group = groups.setdefault(value, Capacity(value=value))
        _add(group, node, usable=node.pk in usable)
    return sorted(groups.values(), key=lambda one: (one.value is None, one.value or ""))


def _add(group: Capacity, node: BackendNode, *, usable: bool) -> None:
    group.nodes += 1
    group.replicas += node.taken  # type: ignore[attr-defined]
    group.total_vram += int(node.vram_budget_bytes or node.total_vram)
    group.total_disk += int(node.total_disk)
    if usable:
        group.schedulable += 1
        group.slots_per_model += node.max_replicas_per_model
        group.free_vram += max(int(node.available_vram) - int(node.reserved_vram), 0)
        group.free_disk += int(node.available_disk)
