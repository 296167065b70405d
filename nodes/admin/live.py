"""The refresh of whatever page shows nodes: only cells that change, each found by its id."""

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from nodes.models import BackendNode
from nodes.presenting import displays, pending, words
from nodes.services import overview

MOST = 100  # twice a page: a hand-written request must not ask for the whole cluster
# Says "this really is the refresh": an expired session answers with the login page instead
MARK = {"X-Live": "1", "Cache-Control": "no-store"}


def fragment(request: HttpRequest) -> HttpResponse:
    """Answer one poll; swapped out of band, so selection and scroll position stay."""
    if not request.user.has_perm("nodes.view_backendnode"):
        raise PermissionDenied
    parts = [*_cells(request), _holding(request)]
    if "pending" in request.GET:
        parts.append(_pending(request))
    return HttpResponse("".join(parts), headers=MARK)


def ids_in(text: str) -> list[UUID]:
    """The node ids in a comma-separated text; what is none is left out."""
    found = []
    for word in text.split(","):
        try:
            found.append(UUID(word))
        except ValueError:
            continue
    return found


def _cells(request: HttpRequest) -> list[str]:
    now = timezone.now()
    ids = ids_in(request.GET.get("ids", ""))[:MOST]
    looks = displays.looks(BackendNode.objects.with_load().filter(pk__in=ids), now=now)
    cells = [displays.cell(name, look, oob=True) for look in looks for name in displays.LIVE]
    if "facts" in request.GET:
        cells += [words.cell(look.node, now=now, oob=True) for look in looks]
    return list(cells)


def _holding(request: HttpRequest) -> str:
    context = {"holding": overview.holding(), "oob": True}
    return render_to_string("console/nodes/_holding.html", context, request)


def _pending(request: HttpRequest) -> str:
    panel = pending.panel(request)
    if panel.version == request.GET["pending"]:
        return ""
    context = {"pending": panel, "oob": True}
    return render_to_string("console/nodes/_pending.html", context, request)
