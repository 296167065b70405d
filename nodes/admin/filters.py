"""What the node list can be narrowed by."""

from typing import Any

from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter

from nodes.models import BackendNode
from nodes.querysets import BackendNodeQuerySet
from nodes.states import NodeStatus, NodeType


def known(chosen: Any) -> bool:
    """Whether the address asks for one of the choices; a NUL in it must not reach PostgreSQL."""
    return chosen.value() in dict(chosen.lookup_choices)


class StatusFilter(DropdownFilter):
    """The computed status. Without a choice the retired stay out of sight."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status.value, status.value) for status in NodeStatus]

    def queryset(self, request: HttpRequest, rows: BackendNodeQuerySet) -> BackendNodeQuerySet:
        wanted = self.value()
        return rows.in_status(NodeStatus(wanted)) if wanted in NodeStatus.values else rows.present()


class TypeFilter(DropdownFilter):
    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind.value, kind.value) for kind in NodeType]

    def queryset(self, request: HttpRequest, rows: BackendNodeQuerySet) -> BackendNodeQuerySet:
        return rows.filter(node_type=self.value()) if known(self) else rows


class GpuFilter(DropdownFilter):
    title = "GPU"
    parameter_name = "gpu"
    NONE = "none"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        vendors = BackendNode.objects.exclude(gpu_vendor="").order_by("gpu_vendor")
        found = vendors.values_list("gpu_vendor", flat=True).distinct()
        return [*((vendor, vendor) for vendor in found), (self.NONE, "none")]

    def queryset(self, request: HttpRequest, rows: BackendNodeQuerySet) -> BackendNodeQuerySet:
        if not known(self):
            return rows
        return rows.filter(gpu_vendor="" if self.value() == self.NONE else self.value())


class KeptFreeFilter(DropdownFilter):
    """Nodes that get nothing new although they work."""

    title = "kept free"
    parameter_name = "kept"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("cordoned", "cordoned"), ("quarantined", "quarantined"), ("no", "neither")]

    def queryset(self, request: HttpRequest, rows: BackendNodeQuerySet) -> BackendNodeQuerySet:
        match self.value():
            case "cordoned":
                return rows.filter(cordoned_at__isnull=False)
            case "quarantined":
                return rows.filter(quarantined_until__isnull=False)
            case "no":
                return rows.filter(cordoned_at=None, quarantined_until=None)
        return rows
