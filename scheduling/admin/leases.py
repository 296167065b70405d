"""A stuck lease ended by hand: first what that means, then, by POST, the end."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from clustermgr.lib.errors import DomainError
from nodes.presenting.displays import ago
from scheduling.admin.editing import page_of
from scheduling.models import RouteLease
from scheduling.services import leasing

GONE = "That lease has ended by itself."


def end(admin: Any, request: HttpRequest, lease_id: UUID) -> HttpResponse:
    if not admin.has_operate_permission(request):
        raise PermissionDenied
    lease = RouteLease.objects.select_related("replica__node").filter(pk=lease_id).first()
    if lease is None:  # they come and go: not a mistake of whoever clicked
        admin.message_user(request, GONE, messages.INFO)
        return HttpResponseRedirect(reverse("admin:scheduling_modelloadinfo_changelist"))
    if request.method == "POST":
        return _end(admin, request, lease)
    context = {
        **admin.admin_site.each_context(request),
        "title": f"End this lease on {lease.replica.process_key}?",
        "opts": admin.model._meta,
        "lease": lease,
        "since": ago(lease.granted_at, now=timezone.now()),
        "back": page_of(lease.replica.model_name, "requests"),
    }
    return TemplateResponse(request, "console/models/lease.html", context)


def _end(admin: Any, request: HttpRequest, lease: RouteLease) -> HttpResponse:
    try:
        leasing.end(lease.pk, by=request.user.get_username(), now=timezone.now())
    except DomainError as refusal:
        admin.message_user(request, str(refusal), messages.ERROR)
    else:
        admin.message_user(request, f"The lease of {lease.holder} is ended.", messages.SUCCESS)
    return HttpResponseRedirect(page_of(lease.replica.model_name, "requests"))
