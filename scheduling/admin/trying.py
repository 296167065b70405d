"""The "Try a request" form: the decision, and nothing kept of it."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from clustermgr.lib.errors import DomainError
from clustermgr.lib.text import checked
from scheduling.services import coldstart, prefixing, trying

PAGE = "console/models/_decision.html"
MOST_OPTIONS = 200


def answer(request: HttpRequest) -> HttpResponse:
    """Asking only reads; the other button also begins the load that a request would begin."""
    may = request.user.has_perm
    loads = request.POST.get("do") == "load"
    if not may("scheduling.view_routelease") or (loads and not may("scheduling.request_route")):
        raise PermissionDenied
    try:
        context = _context(request, begun=_begin(request) if loads else "")
    except DomainError as refusal:
        context = {"refusal": str(refusal)}
    return render(request, PAGE, context)


def _begin(request: HttpRequest) -> str:
    """Have it loaded unless it is; what came of that."""
    model, now = _model(request), timezone.now()
    told = trying.explain(model, prompt="", session="", prefixes=prefixing.default(), now=now)
    if told.chosen is not None:
        return "It is loaded: nothing had to be begun."
    by = request.user.get_username()
    outlook = coldstart.want(model, revision="", by=by, now=now)
    return outlook.sentence or "Its load is under way; ask again in a moment."


def _context(request: HttpRequest, *, begun: str) -> dict[str, object]:
    now = timezone.now()
    told = trying.explain(
        _model(request),
        prompt=request.POST.get("prompt", ""),
        session=checked(request.POST.get("session", "").strip(), field="session", limit=512),
        prefixes=prefixing.default(),
        now=now,
    )
    progress = coldstart.status(told.job) if told.job else None
    shown, more = told.options[:MOST_OPTIONS], max(len(told.options) - MOST_OPTIONS, 0)
    return {"told": told, "begun": begun, "progress": progress, "options": shown, "more": more}


def _model(request: HttpRequest) -> str:
    return checked(request.POST.get("model", ""), field="model", limit=255)
