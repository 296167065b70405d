"""The "Why?" button: what stands in the way, and the smallest change that would help."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from scheduling.presenting import rows


def why(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm("scheduling.view_placementdecision"):
        raise PermissionDenied
    name = request.GET.get("model", "").replace("\x00", "")
    [row] = rows.rows([name], now=timezone.now())
    return render(request, "console/models/_answer.html", {"row": row})
