"""The page that answers "what if": a question by GET, since nothing is changed by asking."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from clustermgr.lib.errors import DomainError
from nodes.models import BackendNode
from scheduling.models import ModelLoadInfo
from scheduling.presenting import rows, supposing
from scheduling.services import asking

MOST_NAMES = 500


def page(admin: Any, request: HttpRequest) -> HttpResponse:
    """The form, and below it the answer to what it asks."""
    if not request.user.has_perm(rows.ASK):
        raise PermissionDenied
    asked = {name: str(value).replace("\x00", "") for name, value in request.GET.items()}
    nodes = BackendNode.objects.filter(retired_at=None).order_by("name")
    context = {
        **admin.admin_site.each_context(request),
        "title": "What if?",
        "opts": admin.model._meta,
        "asked": asked,
        "acts": supposing.ACTS,
        "nodes": nodes.values_list("name", flat=True)[:MOST_NAMES],
        "known": ModelLoadInfo.objects.values_list("model_name", flat=True)[:MOST_NAMES],
        **_answer(asked),
    }
    return TemplateResponse(request, "console/models/what_if.html", context)


def _answer(asked: dict[str, str]) -> dict[str, Any]:
    if not supposing.asks(asked):
        return {}
    try:
        changes = supposing.read(asked)
        found = asking.compare(changes, now=timezone.now())
    except DomainError as refusal:
        return {"refusal": str(refusal)}
    return {"answer": supposing.answer(found, changes=changes)}
