"""The "Why?" button: what stands in the way, and the smallest change that would help."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from clustermgr.lib.errors import NotFound
from scheduling.presenting import rows
from scheduling.services import asking

MOST_VERDICTS = 200


def why(request: HttpRequest) -> HttpResponse:
    """Asked of the planner at this moment; nothing is changed by it."""
    if not request.user.has_perm(rows.ASK):
        raise PermissionDenied
    name = request.GET.get("model", "").replace("\x00", "")
    try:
        answer = asking.why(name, now=timezone.now())
    except NotFound as refusal:
        return render(request, "console/models/_answer.html", {"refusal": str(refusal)})
    verdicts = [one.as_json() for one in answer.verdicts[:MOST_VERDICTS]]
    context = {
        "answer": answer,
        "verdicts": verdicts,
        "more": max(len(answer.verdicts) - MOST_VERDICTS, 0),
    }
    return render(request, "console/models/_answer.html", context)
