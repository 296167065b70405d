"""Changes of operations as server-sent events: the format, and one batch for plain HTTP.

A server that speaks ASGI keeps the stream open (api/door.py). Elsewhere this view answers what
changed since Last-Event-ID and ends; a browser's EventSource comes back by itself.
"""

import json
from dataclasses import asdict

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from backendops.api.base import OperationsView, described
from backendops.services import streaming
from backendops.services.streaming import Change
from clustermgr.lib.errors import InvalidInput

NEEDS = "backendops.view_operation"
CONTENT_TYPE = "text/event-stream"
MOST_REPLAYED = 5000  # more is a reload
# How far to look back for numbers that were taken earlier and committed later
OVERLAP = 1000
# Of each event, as OpenAPI describes streams
MESSAGE = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "For Last-Event-ID."},
        "event": {"type": "string", "description": "Absent: a change; else hello or reset."},
        "data": {"type": "string", "description": "A change, as JSON."},
    },
}
RETRY = b"retry: 3000\n\n"  # milliseconds
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx would keep it until it is worth sending
}


class Anything(BaseContentNegotiation):
    """EventSource asks for text/event-stream, which no renderer is needed for."""

    def select_parser(self, request, parsers):  # type: ignore[no-untyped-def]
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):  # type: ignore[no-untyped-def]
        return renderers[0], renderers[0].media_type


class ChangesView(OperationsView):
    needs = {"GET": NEEDS}
    content_negotiation_class = Anything

    @described(
        "streamOperations",
        "Changes of operations as server-sent events, after Last-Event-ID",
        {(200, CONTENT_TYPE): MESSAGE},
        parameters=[OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER)],
    )
    def get(self, request: Request) -> HttpResponse:
        body = RETRY + opening(last_event_id(request.headers.get("Last-Event-ID", "")))
        return HttpResponse(body, content_type=CONTENT_TYPE, headers=HEADERS)


def last_event_id(text: str) -> int | None:
    """The number a client saw last; None when it begins."""
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidInput("Last-Event-ID must be one that this stream sent.")
    return int(text)


def opening(seen: int | None) -> bytes:
    """What a client gets first: where it begins, or what it missed."""
    if seen is None:
        return event("hello", streaming.newest())
    missed = streaming.since(max(seen - OVERLAP, 0), most=MOST_REPLAYED)
    if missed is None:
        return event("reset", streaming.newest())
    return b"".join(encode(change) for change in missed)


def encode(change: Change) -> bytes:
    data = json.dumps(asdict(change), separators=(",", ":"))
    return f"id: {change.change}\ndata: {data}\n\n".encode()


def event(kind: str, number: int) -> bytes:
    """`hello`: from here on; `reset`: too much was missed, read the list again."""
    return f'id: {number}\nevent: {kind}\ndata: {{"change":{number}}}\n\n'.encode()
