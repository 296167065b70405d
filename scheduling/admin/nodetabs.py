"""What models add to a node's page: how far a drain is, and the loads; they come to it."""

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from nodes.admin import nodepage
from nodes.admin.live import MARK
from nodes.models import BackendNode
from scheduling.admin.modelpage import page_of_rows
from scheduling.models import LoadJob
from scheduling.presenting import emptying as words
from scheduling.presenting.words import job_line
from scheduling.services import emptying
from scheduling.states import ACTIVE

LOADS = "scheduling.view_loadjob"


def fragment(request: HttpRequest, node_id: UUID) -> HttpResponse:
    """Answer one poll of a node's page."""
    if not request.user.has_perm("nodes.view_backendnode"):
        raise PermissionDenied
    node = BackendNode.objects.filter(pk=node_id).first()
    if node is None:
        raise Http404
    parts: list[str] = [
        render_to_string("console/nodes/_drain.html", _drain(node, oob=True), request)
    ]
    if "loads" in request.GET and request.user.has_perm(LOADS):
        parts.append(_active(request, node, oob=True))
    return HttpResponse("".join(parts), headers=MARK)


def drain_panel(request: HttpRequest, node: BackendNode) -> str:
    """While a node is being emptied: what still stands, and why."""
    if node.drain_requested_at is None or not request.user.has_perm("nodes.view_nodemodel"):
        return ""
    return render_to_string("console/nodes/drain.html", _drain(node), request)


def _drain(node: BackendNode, *, oob: bool = False) -> dict[str, Any]:
    if node.drain_requested_at is None:
        return {"node": node, "oob": oob}
    now, found = timezone.now(), emptying.remaining(node)
    return {
        "node": node,
        "oob": oob,
        "headline": words.headline(found, node=node, now=now),
        "lines": words.lines(found, node=node, now=now),
    }


def _loads(request: HttpRequest, node: BackendNode) -> dict[str, Any]:
    over = LoadJob.objects.filter(node=node).exclude(state__in=ACTIVE).order_by("-id")
    page, now = page_of_rows(request, over), timezone.now()
    jobs = [job_line(job, now=now) for job in page["found"]]
    return {**page, "jobs": jobs, "active": _active(request, node)}


def _active(request: HttpRequest, node: BackendNode, *, oob: bool = False) -> str:
    now = timezone.now()
    jobs = LoadJob.objects.active().filter(node=node).order_by("id")
    context = {"jobs": [job_line(job, now=now) for job in jobs], "by_model": True, "oob": oob}
    return render_to_string("console/nodes/_loads.html", context, request)


nodepage.add_tab("loads", _loads, needs=LOADS, before="labels")
nodepage.add_panel(drain_panel)
