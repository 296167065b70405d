"""What the sidebar offers; built per request, so that a badge appears only when wanted."""

from typing import Any

from django.db.models import Count, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from backendops.models import PendingBackendOp
from backendops.presenting import strip
from nodes.models import BackendNode, ClusterEvent
from nodes.states import Severity
from scheduling.models import ModelSchedulingConfig

VIEW_NODES = "nodes.view_backendnode"
VIEW_EVENTS = "nodes.view_clusterevent"
VIEW_MODELS = "scheduling.view_modelloadinfo"
VIEW_OPS = "backendops.view_pendingbackendop"


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups; what somebody may not see is not listed."""
    waiting = _waiting()
    return [
        {"title": "Fleet", "items": _allowed(request, _fleet(request, waiting))},
        {"title": "Models", "separator": True, "items": _allowed(request, _models(waiting))},
        {"title": "Software", "separator": True, "items": _allowed(request, _orders(request))},
        {"title": "Access", "separator": True, "items": _allowed(request, _access())},
    ]


def _fleet(request: HttpRequest, waiting: dict[str, int]) -> list[dict[str, Any]]:
    pending = waiting.get("nodes", 0)
    urgent = _urgent() if request.user.has_perm(VIEW_EVENTS) else 0
    return [
        _item("Overview", "dashboard", "index"),
        _item("Nodes", "dns", "nodes_backendnode_changelist", VIEW_NODES, badge=pending),
        _item("Replicas", "deployed_code", "nodes_nodemodel_changelist", "nodes.view_nodemodel"),
        _item("Add a worker", "add_circle", "add_worker", "nodes.add_jointoken"),
        {
            **_item("Join tokens", "vpn_key", "nodes_jointoken_changelist", "nodes.view_jointoken"),
            "active": _among_tokens,  # the page "Add a worker" lives below its address
        },
        _item("Events", "history", "nodes_clusterevent_changelist", VIEW_EVENTS, badge=urgent),
    ]


def _models(waiting: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            **_item(
                *("Models", "neurology", "scheduling_modelloadinfo_changelist"),
                VIEW_MODELS,
                badge=waiting.get("rules", 0),
                variant="danger",
            ),
            "active": _among_models,  # the page "What if?" lives below its address
        },
        _item(
            *("Scheduling rules", "rule", "scheduling_modelschedulingconfig_changelist"),
            "scheduling.view_modelschedulingconfig",
        ),
        _item(
            *("What if?", "psychology_alt", "scheduling_whatif"),
            "scheduling.view_placementdecision",
        ),
    ]


def _orders(request: HttpRequest) -> list[dict[str, Any]]:
    dead = PendingBackendOp.objects.all().dead().count() if request.user.has_perm(VIEW_OPS) else 0
    failures = strip.of(request, now=timezone.now()).failures
    return [
        {
            **_item(
                *("Operations", "deployed_code_update", "backendops_operation_changelist"),
                strip.VIEW,
                badge=failures,
                variant="danger",
            ),
            "active": _among_operations,  # the page that gives orders lives below its address
        },
        _item(
            *("Give an order", "add_circle", "backendops_operation_install"),
            "backendops.request_operation",
        ),
        _item(
            *("Backends", "inventory_2", "backendops_nodebackend_changelist"),
            "backendops.view_nodebackend",
        ),
        _item(
            *("Dead letters", "mark_email_unread", "backendops_pendingbackendop_changelist"),
            VIEW_OPS,
            badge=dead,
        ),
    ]


def _access() -> list[dict[str, Any]]:
    return [
        _item("Users", "person", "auth_user_changelist", "auth.view_user"),
        _item("Groups", "group", "auth_group_changelist", "auth.view_group"),
        _item("API tokens", "key", "clustermgr_apitoken_changelist", "clustermgr.view_apitoken"),
    ]


def _among_tokens(request: HttpRequest) -> bool:
    tokens = reverse("admin:nodes_jointoken_changelist")
    return request.path.startswith(tokens) and request.path != reverse("admin:add_worker")


def _among_models(request: HttpRequest) -> bool:
    models = reverse("admin:scheduling_modelloadinfo_changelist")
    return request.path.startswith(models) and request.path != reverse("admin:scheduling_whatif")


def _among_operations(request: HttpRequest) -> bool:
    operations = reverse("admin:backendops_operation_changelist")
    install = reverse("admin:backendops_operation_install")
    return request.path.startswith(operations) and request.path != install


def _item(
    title: str, icon: str, name: str, needs: str = "", badge: int = 0, variant: str = "warning"
) -> dict[str, Any]:
    item: dict[str, Any] = {"title": title, "icon": icon, "link": reverse(f"admin:{name}")}
    if badge:  # the theme would show 0 as "0"
        item |= {"badge": badge, "badge_variant": variant, "badge_style": "solid"}
    return {**item, "needs": needs}


def _allowed(request: HttpRequest, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if not item["needs"] or request.user.has_perm(item["needs"])]


def _waiting() -> dict[str, int]:
    """Nodes that wait for approval and rules that starve; in one statement, as on every page."""
    nodes = BackendNode.objects.waiting_for_approval()
    rules = ModelSchedulingConfig.objects.filter(unsatisfiable_since__isnull=False)
    return dict(_counted("nodes", nodes).union(_counted("rules", rules), all=True))


def _counted(kind: str, rows: QuerySet[Any]) -> Any:
    named = rows.order_by().annotate(kind=Value(kind)).values("kind")
    return named.annotate(count=Count("pk")).values_list("kind", "count")


def _urgent() -> int:
    return ClusterEvent.objects.filter(severity=Severity.ATTENTION, acknowledged_at=None).count()
