"""One replica unloaded or moved: first what that means, then, by POST, the order."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone

from clustermgr.lib.errors import DomainError
from nodes.models import BackendNode, NodeModel
from scheduling.admin.editing import page_of
from scheduling.services import acting, unloading

TITLES = {"unload": "Unload", "move": "Move"}
MOST_NODES = 500


def page(admin: Any, request: HttpRequest, replica_id: UUID, verb: str) -> HttpResponse:
    if verb not in TITLES:
        raise Http404
    if not admin.has_operate_permission(request):
        raise PermissionDenied
    replica = NodeModel.objects.select_related("node").filter(pk=replica_id).first()
    if replica is None:
        raise Http404
    if request.method == "POST":
        return _do(admin, request, replica, verb)
    nodes = BackendNode.objects.schedulable().exclude(pk=replica.node_id)
    context = {
        **admin.admin_site.each_context(request),
        "title": f"{TITLES[verb]} {replica.process_key}?",
        "opts": admin.model._meta,
        "replica": replica,
        "verb": verb,
        "back": page_of(replica.model_name),
        "nodes": nodes.order_by("name").values_list("name", flat=True)[:MOST_NODES],
    }
    return TemplateResponse(request, "console/models/replica.html", context)


def _do(admin: Any, request: HttpRequest, replica: NodeModel, verb: str) -> HttpResponse:
    try:
        sentence = _unload(request, replica) if verb == "unload" else _move(request, replica)
    except DomainError as refusal:
        admin.message_user(request, str(refusal), messages.ERROR)
    else:
        admin.message_user(request, sentence, messages.SUCCESS)
    return HttpResponseRedirect(page_of(replica.model_name))


def _unload(request: HttpRequest, replica: NodeModel) -> str:
    by, force = request.user.get_username(), "force" in request.POST
    unloading.unload_now(replica, by=by, now=timezone.now(), force=force)
    return f"{replica.process_key} on {replica.node.name} is being unloaded."


def _move(request: HttpRequest, replica: NodeModel) -> str:
    by, to = request.user.get_username(), request.POST.get("to", "").strip()
    job = acting.move(replica, to=to, by=by, now=timezone.now())
    return (
        f"{replica.model_name} is being loaded on {job.node.name}; "
        f"{replica.node.name} serves until that is done."
    )
