"""A request id on every request, and the tightest policy the admin theme allows."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from clustermgr.lib.context import accept, request_id

GetResponse = Callable[[HttpRequest], HttpResponse]

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


class ContentSecurityPolicyMiddleware:
    """Django 5.2 has no policy of its own."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.setdefault("Content-Security-Policy", POLICY)
        response.setdefault("Cache-Control", "private, no-cache")
        return response
