"""A request id on every request, and the tightest policy the admin theme allows."""

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from clustermgr.lib.context import accept, request_id
from clustermgr.metrics import HTTP_SECONDS

GetResponse = Callable[[HttpRequest], HttpResponse]
# A caller can invent methods; each would be a time series of its own.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# The admin theme evaluates Alpine expressions and styles inline, hence the two `unsafe-*`.
# Everything else stays at home: no foreign script, frame, font or form target.
POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class RequestIdMiddleware:
    """Take the caller's id or make one; log lines, tasks and events carry it."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = request_id.set(accept(request.headers.get("X-Request-ID", "")))
        try:
            response = self.get_response(request)
            response["X-Request-ID"] = request_id.get()
            return response
        finally:
            request_id.reset(token)


class MetricsMiddleware:
    """How long each route takes; by pattern, since ids would make a series of every node."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.monotonic()
        response = self.get_response(request)
        method = request.method if request.method in METHODS else "other"
        route = request.resolver_match.route if request.resolver_match else "(none)"
        labels = {"method": method, "route": route, "status": response.status_code}
        HTTP_SECONDS.labels(**labels).observe(time.monotonic() - began)
        return response


class ContentSecurityPolicyMiddleware:
    """Django 5.2 has no policy of its own."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.setdefault("Content-Security-Policy", POLICY)
        response.setdefault("Cache-Control", "private, no-cache")
        return response
