"""What orders add to the pages about nodes; nodes knows nothing of orders, so they come to it."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from backendops.admin import operationpage
from backendops.models import PendingBackendOp
from backendops.presenting import fleet, shares
from nodes.admin import bulk, nodepage
from nodes.models import BackendNode

PER_PAGE = 25
MOST_NAMED = 200  # an address has its limits; beyond it the picker's own filter is meant


def _backends(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    may = request.user.has_perm("backendops.request_operation")
    return {**fleet.on_node(node, now=timezone.now()), "may_request": may}


def _operations(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    number = nodepage.page_number(request)
    start = (number - 1) * PER_PAGE
    ops = PendingBackendOp.objects.filter(node=node).order_by("-id").select_related("node")
    rows = list(ops[start : start + PER_PAGE + 1])
    found = shares.shares(rows[:PER_PAGE], may=operationpage.may(request), now=timezone.now())
    return {
        "rows": [(one, {name: shares.cell(name, one) for name in shares.LIVE}) for one in found],
        "op_ids": ",".join(str(one.op.pk) for one in found),
        "now": timezone.now(),
        "earlier": number + 1 if len(rows) > PER_PAGE else None,
        "later": number - 1 if number > 1 else None,
    }


def install_selected(
    admin: Any, request: HttpRequest, rows: Iterable[BackendNode]
) -> HttpResponse | None:
    """Lead to the page that gives orders, with these nodes chosen."""
    ids = [str(node.pk) for node in rows]
    if len(ids) > MOST_NAMED:
        sentence = (
            f"At most {MOST_NAMED} nodes can be taken along; choose a whole set of them here."
        )
        admin.message_user(request, sentence, messages.WARNING)
        ids = []
    page = reverse("admin:backendops_operation_install")
    return HttpResponseRedirect(f"{page}?{urlencode({'nodes': ','.join(ids)}, safe=',')}")


install_selected.short_description = "Install a backend on ..."  # type: ignore[attr-defined]
install_selected.allowed_permissions = ["install"]  # type: ignore[attr-defined]

bulk.offer(install_selected)
nodepage.add_tab("backends", _backends, needs="backendops.view_nodebackend", before="labels")
nodepage.add_tab("operations", _operations, needs="backendops.view_operation", before="labels")
