"""The Logs tab: what can be said without the worker at once, what only it knows afterwards."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from clustermgr.lib.errors import DomainError, InvalidInput
from nodes.models import BackendNode
from nodes.services import logs
from nodes.wire import ProcessKey

PERMISSION = "nodes.view_logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One log somebody can open."""

    title: str
    url: str
    current: bool


def page_of(node_id: object, key: str) -> str:
    """Where a log is shown: `model#replica` for one process, the model alone for all merged."""
    page = reverse("admin:nodes_backendnode_change", args=[node_id])
    return f"{page}?{urlencode({'tab': 'logs', 'log': key})}"


def context(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    """The tab itself; asks no worker, so that a dead one cannot keep the page."""
    key = request.GET.get("log", "")
    return {
        "may_read": request.user.has_perm(PERMISSION),
        "log": key,
        "switch": _replicas(node, key) if key else [],
    }


def fragment(request: HttpRequest, node_id: str) -> HttpResponse:
    """Which logs there are, asked of the worker after the page is there."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    rows = BackendNode.objects.select_related("join_token")
    node = get_object_or_404(rows, pk=node_id)
    chosen, refusal, printed = _model_of(request.GET.get("log", "")), "", []
    try:
        printed = logs.models(node, now=timezone.now())
    except DomainError as error:
        refusal = str(error)
    placed = node.replicas.values_list("model_name", flat=True)
    choices = [
        Choice(title=model, url=page_of(node.pk, model), current=model == chosen)
        for model in sorted({*printed, *placed})
    ]
    shown = {"choices": choices, "refusal": refusal, "again": request.get_full_path()}
    return render(request, "console/nodes/_logs.html", shown)


def _replicas(node: BackendNode, key: str) -> list[Choice]:
    """All merged, or one of them; nothing to choose where only one is known."""
    model = _model_of(key)
    rows = node.replicas.filter(model_name=model).order_by("replica_index")
    keys = [row.process_key for row in rows]
    if key != model and key not in keys:
        keys.append(key)
    if len(keys) < 2 and key == model:
        return []
    titles = {model: "Merged", **{one: one[len(model) :] for one in keys}}
    return [
        Choice(title=title, url=page_of(node.pk, one), current=one == key)
        for one, title in titles.items()
    ]


def _model_of(key: str) -> str:
    try:
        return ProcessKey.parse(key).model_id
    except InvalidInput:
        return key
