"""The refresh of whatever page shows operations: one request, only what changed, by id."""

from datetime import datetime, timedelta
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from backendops.admin import operationpage
from backendops.models import Operation, PendingBackendOp
from backendops.presenting import lines, shares, strip
from nodes.admin.live import MARK, ids_in

MOST = 100  # twice a page: a hand-written request must not ask for the whole history
# Rows are stamped before they are committed: look back a little further than the last answer
OVERLAP = timedelta(seconds=5)


def fragment(request: HttpRequest) -> HttpResponse:
    """Answer one poll. X-Next says how soon to ask again; 0: nothing is under way any more."""
    if not request.user.has_perm(strip.VIEW):
        raise PermissionDenied
    now = timezone.now()
    line = strip.of(request, now=now)
    parts = [
        render_to_string("console/operations/_strip.html", {"strip": line, "oob": True}, request),
        *_lines(request, now=now),
        *_shares(request, now=now),
        *_page(request, now=now),
        render_to_string("console/operations/_seen.html", {"now": now, "oob": True}),
    ]
    return HttpResponse("".join(parts), headers={**MARK, "X-Next": str(line.every)})


def _lines(request: HttpRequest, *, now: datetime) -> list[str]:
    ids = ids_in(request.GET.get("rows", ""))[:MOST]
    if not ids:
        return []
    found = lines.lines(list(Operation.objects.filter(pk__in=ids)), now=now)
    return [lines.cell(name, line, oob=True) for line in found for name in lines.LIVE]


def _shares(request: HttpRequest, *, now: datetime) -> list[str]:
    """Of the ops on the page, those that changed since the last answer."""
    words = request.GET.get("ops", "").split(",")
    ids = [int(word) for word in words if word.isdecimal() and len(word) < 19][:MOST]
    if not ids:
        return []
    rows = PendingBackendOp.objects.filter(pk__in=ids).select_related("node")
    since = _since(request)
    if since is not None:
        rows = rows.touched_since(since - OVERLAP)
    found = shares.shares(rows, may=operationpage.may(request), now=now)
    return [shares.cell(name, one, oob=True) for one in found for name in shares.LIVE]


def _since(request: HttpRequest) -> datetime | None:
    try:
        return datetime.fromisoformat(request.GET.get("seen", ""))
    except ValueError:
        return None


def _page(request: HttpRequest, *, now: datetime) -> list[str]:
    ids: list[UUID] = ids_in(request.GET.get("operation", ""))[:1]
    operation = Operation.objects.filter(pk__in=ids).first() if ids else None
    if operation is None:
        return []
    context = {**operationpage.head(request, operation, now=now), "oob": True}
    return [
        render_to_string(f"console/operations/_{part}.html", context, request)
        for part in ("head", "verbs", "timeline")
    ]
