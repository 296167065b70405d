"""What a node's page shows; each tab reads only what it needs, and has an address of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from nodes.admin import logs
from nodes.models import BackendNode, ClusterEvent, NodeLabel
from nodes.presenting import displays, words
from nodes.services import labels, overview
from nodes.states import LabelSource, TaintEffect
from nodes.wire import MAX_SLOTS

EVENTS_PER_PAGE = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    label: NodeLabel
    counts: bool  # it is the strongest owner's value
    ours: bool
    owner: str


def _overview(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    return {
        "facts_cell": words.cell(node, now=timezone.now()),
        "hardware": [
            ("Type", node.node_type),
            ("GPU", " ".join(filter(None, [node.gpu_vendor, node.gpu_compute_capability]))),
            ("Capability", node.capability),
            ("Address", node.address),
            ("HTTP address", node.http_address),
            ("Join token", node.join_token.name if node.join_token else ""),
            ("First seen", f"{node.created_at:%Y-%m-%d %H:%M} UTC"),
            ("Boot id", node.boot_id),
            ("Id", str(node.pk)),
        ],
    }


def _replicas(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    now = timezone.now()
    rows = node.replicas.order_by("model_name", "replica_index")
    shown = [
        (
            row,
            displays.ago(row.last_used, now=now) if row.last_used else "never",
            logs.page_of(node.pk, row.process_key),
        )
        for row in rows
    ]
    return {"replicas": shown, "may_read": request.user.has_perm(logs.PERMISSION)}


def _labels(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    taken: set[str] = set()
    rows = []
    for label in NodeLabel.objects.filter(node=node).strongest_first():
        source = LabelSource(label.source)
        rows.append(
            LabelRow(
                label=label,
                counts=label.key not in taken,
                ours=source == LabelSource.ADMIN,
                owner=labels.OWNERS[source],
            )
        )
        taken.add(label.key)
    rows.sort(key=lambda row: row.label.key)
    return {"labels": rows, "taints": list(node.taints.all()), "effects": TaintEffect.values}


def _capacity(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    return {
        "max_slots": MAX_SLOTS,
        "budget_size": displays.size(int(node.vram_budget_bytes)),
    }


def _events(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    number = page_number(request)
    start = (number - 1) * EVENTS_PER_PAGE
    rows = list(ClusterEvent.objects.filter(node=node)[start : start + EVENTS_PER_PAGE + 1])
    return {
        "events": [(event, words.in_words(event.kind)) for event in rows[:EVENTS_PER_PAGE]],
        "earlier": number + 1 if len(rows) > EVENTS_PER_PAGE else None,
        "later": number - 1 if number > 1 else None,
    }


def page_number(request: HttpRequest) -> int:
    """Which page of a tab is asked for; nonsense is the first."""
    page = request.GET.get("p", "1")
    return max(int(page), 1) if page.isdecimal() and len(page) < 6 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    context: Callable[[HttpRequest, BackendNode], dict[str, Any]]
    needs: str = ""  # a permission beyond that of seeing the node


# Each is drawn by console/nodes/tab_<name>.html
TABS: dict[str, Tab] = {
    "overview": Tab(context=_overview),
    "replicas": Tab(context=_replicas),
    "labels": Tab(context=_labels),
    "capacity": Tab(context=_capacity),
    "logs": Tab(context=logs.context),
    "events": Tab(context=_events),
}


def add_tab(
    name: str,
    context: Callable[[HttpRequest, BackendNode], dict[str, Any]],
    *,
    needs: str,
    before: str,
) -> None:
    """Let an app that stands on nodes show on a node's page what it knows about it."""
    rest = list(TABS)[list(TABS).index(before) :]
    later = {other: TABS.pop(other) for other in rest}
    TABS[name] = Tab(context=context, needs=needs)
    TABS.update(later)


Panel = Callable[[HttpRequest, BackendNode], str]
_panels: dict[Panel, None] = {}


def add_panel(draw: Panel) -> None:
    """Let an app that stands on nodes say something above the tabs. Twice is once."""
    _panels[draw] = None


def context(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    """Everything the template needs for the tab that was asked for."""
    allowed = [
        name for name, tab in TABS.items() if not tab.needs or request.user.has_perm(tab.needs)
    ]
    asked = request.GET.get("tab", "overview")
    tab = asked if asked in allowed else "overview"
    look = displays.looks([node], now=timezone.now())[0]
    return {
        "node": node,
        "title": node.name,
        "cells": {name: displays.cell(name, look) for name in displays.LIVE},
        "panels": [draw(request, node) for draw in _panels],
        "tab": tab,
        "tabs": allowed,
        "tab_template": f"console/nodes/tab_{tab}.html",
        "may_edit": request.user.has_perm("nodes.label_backendnode") and not node.retired_at,
        "holding": overview.holding(),
        **TABS[tab].context(request, node),
    }
