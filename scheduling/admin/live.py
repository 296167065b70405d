"""The refresh of whatever page shows models, and the hint beside a selector."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from clustermgr.lib.errors import InvalidInput
from nodes.admin.live import MARK
from scheduling.admin import modelpage
from scheduling.presenting import rows
from scheduling.services import standing

VIEW = "scheduling.view_modelloadinfo"
LEASES = "scheduling.view_routelease"
MOST = 100  # twice a page: a hand-written request must not ask for everything


def fragment(request: HttpRequest) -> HttpResponse:
    """Answer one poll; swapped out of band, so selection and scroll position stay."""
    if not request.user.has_perm(VIEW):
        raise PermissionDenied
    names = [name.replace("\x00", "") for name in request.GET.getlist("model")[:MOST]]
    found = rows.rows(names, request=request, now=timezone.now())
    parts = [rows.cell(name, row, oob=True) for row in found for name in rows.LIVE]
    if "running" in request.GET and names and request.user.has_perm("nodes.view_nodemodel"):
        context = {**modelpage.running(names[0], request=request), "oob": True}
        parts.append(render_to_string("console/models/_running.html", context, request))
    if "requests" in request.GET and names and request.user.has_perm(LEASES):
        context = {**modelpage.asked(names[0], request=request), "oob": True}
        parts.append(render_to_string("console/models/_requests.html", context, request))
    return HttpResponse("".join(parts), headers=MARK)


def matches(request: HttpRequest) -> HttpResponse:
    """How many nodes a selector means, while it is being written."""
    if not request.user.has_perm("nodes.view_backendnode"):
        raise PermissionDenied
    text = request.GET.get("selector", "").replace("\x00", "")
    try:
        count, of = standing.matching_nodes(text)
    except InvalidInput as refusal:
        return render(request, "console/models/_matches.html", {"refusal": str(refusal)})
    return render(request, "console/models/_matches.html", {"count": count, "of": of})
