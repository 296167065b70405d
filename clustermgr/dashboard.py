"""What the index page says: how the fleet is, what needs somebody, and how we are ourselves."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from backendops.models import PendingBackendOp
from backendops.presenting import lines, strip, words
from backendops.services import upgrades
from backendops.services.rollups import Rollup
from clustermgr.health import Check, current_report
from nodes.models import BackendNode, ClusterEvent
from nodes.presenting import displays, pending
from nodes.services import overview
from nodes.states import NodeStatus, Severity

TITLES = {
    "database": "PostgreSQL",
    "nats": "NATS",
    "broker": "Celery broker",
    "beat": "Clockwork",
    "heartbeats": "Heartbeats",
}
MOST = 8  # of each kind on the attention list


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLine:
    """One part of the manager, in words."""

    title: str
    ok: bool
    reason: str
    age: str


def parts() -> list[PartLine]:
    report = current_report(timezone.now())
    return [_line(TITLES[name], check) for name, check in report.items()]


def _line(title: str, check: Check) -> PartLine:
    seconds = check.age_seconds or 0.0
    age = f"Last tick {seconds:.0f} s ago" if title == TITLES["beat"] else ""
    if not check.ok:
        age = f"Failing for {seconds:.0f} s"
    return PartLine(title=title, ok=check.ok, reason=check.reason, age=age)


def fleet(request: HttpRequest) -> dict[str, Any]:
    """Counts, capacity and the attention list; a fixed number of queries."""
    if not request.user.has_perm("nodes.view_backendnode"):
        return {}
    cluster = overview.cluster()
    return {
        "cluster": cluster,
        "holding": overview.holding(),
        "bars": capacity(cluster.bytes),
        "urgent": _urgent(request),
        "pending": pending.panel(request),
        "offline": list(BackendNode.objects.in_status(NodeStatus.OFFLINE)[:MOST]),
        **_orders(request),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One operation on the index page."""

    roll: Rollup
    headline: str
    nodes: str
    bar: displays.Bar | None
    amounts: str


def _orders(request: HttpRequest) -> dict[str, Any]:
    """What runs and what failed."""
    if not request.user.has_perm(strip.VIEW):
        return {}
    live = strip.live(request, now=timezone.now())
    running = [roll for roll in live if roll.active]
    bad = [roll for roll in live if roll.needs_attention and not roll.active]
    return {
        "may_see_orders": True,
        "running": [_order_line(roll) for roll in running[:MOST]],
        "running_count": len(running),
        "failures": [_order_line(roll) for roll in bad[:MOST]],
        "failure_count": len(bad),
        "dead_letters": PendingBackendOp.objects.all().dead().count(),
    }


def _order_line(roll: Rollup) -> OrderLine:
    return OrderLine(
        roll=roll,
        headline=words.headline(roll),
        nodes=words.nodes(roll),
        bar=lines.bar(roll),
        amounts=lines.amounts(roll),
    )


def capacity(sums: dict[str, int]) -> list[displays.Bar]:
    """What all live nodes have together."""
    free = sums["available_vram"] - sums["reserved_vram"]
    return [
        displays.bar("VRAM", total=sums["total_vram"], free=free),
        displays.bar("RAM", total=sums["total_ram"], free=sums["available_ram"]),
        displays.bar("Disk", total=sums["total_disk"], free=sums["available_disk"]),
    ]


def _urgent(request: HttpRequest) -> list[ClusterEvent]:
    if not request.user.has_perm("nodes.view_clusterevent"):
        return []
    rows = ClusterEvent.objects.filter(severity=Severity.ATTENTION, acknowledged_at=None)
    return list(rows[:MOST])


def add_to_index(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The theme's hook: everything templates/admin/index.html shows."""
    return {**context, "title": "Overview", "parts": parts(), **fleet(request)}


def parts_fragment(request: HttpRequest) -> HttpResponse:
    """The live half of the panel; the page asks for it every ten seconds."""
    return render(request, "console/_parts.html", {"parts": parts()})


def fleet_fragment(request: HttpRequest) -> HttpResponse:
    return render(request, "console/_fleet.html", fleet(request))


def upgrades_fragment(request: HttpRequest) -> HttpResponse:
    """What could be newer; asked for once by each page, since it reads the whole fleet."""
    may = request.user.has_perm("backendops.view_nodebackend")
    newer = sorted(upgrades.available()) if may else []
    return render(request, "console/_upgrades.html", {"newer": newer})
