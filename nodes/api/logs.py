"""What backends printed, on LocalAI's paths, with a sieve and as a file."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db.models import TextChoices
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.api import number
from nodes import loglines
from nodes.api.base import OperatorView, findable, moment, one_of, operator_schema
from nodes.api.serializers import ErrorOut, LogLineOut
from nodes.loglines import Sieve
from nodes.services import logs

MOST = 1_000_000
WORKER_ERRORS = {502: OpenApiResponse(ErrorOut), 503: OpenApiResponse(ErrorOut)}


class Stream(TextChoices):
    STDOUT = "stdout"
    STDERR = "stderr"


class Format(TextChoices):
    JSON = "json"
    TEXT = "text"


SIEVE = [
    OpenApiParameter("stream", str, enum=Stream.values),
    OpenApiParameter("q", str, description="Only lines that contain this, in any case."),
    OpenApiParameter("since", datetime, description="Only lines from then on; RFC 3339."),
    OpenApiParameter("tail", int, description="Only so many, the last ones."),
    OpenApiParameter("format", str, enum=Format.values, description="Makes the answer a download."),
]


class OneFormat(BaseContentNegotiation):
    """`?format=` asks for a file here; REST framework would take it for a renderer's name."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class LogIndexView(OperatorView):
    needs = {"GET": "nodes.view_logs"}

    @operator_schema(
        "listNodeLogs",
        "The models that printed something on a node",
        serializers.ListSerializer(child=serializers.CharField()),
        errors=WORKER_ERRORS,
    )
    def get(self, request: Request, node_id: str) -> Response:
        return Response(logs.models(self.node(node_id), now=timezone.now()))


class LogView(OperatorView):
    needs = {"GET": "nodes.view_logs"}
    content_negotiation_class = OneFormat

    @operator_schema(
        "readNodeLog",
        "What a model's processes printed; `model#0` for one replica",
        LogLineOut(many=True),
        parameters=SIEVE,
        errors=WORKER_ERRORS,
    )
    def get(self, request: Request, node_id: str, model_id: str) -> Response | HttpResponse:
        node, sieve, key = self.node(node_id), sieve_of(request), findable("The model", model_id)
        asked = request.query_params.get("format")
        file_format = one_of("format", asked, Format) if asked else None
        found = sieve.pick(logs.lines(node, key, now=timezone.now()))
        if file_format == Format.TEXT:
            text = loglines.as_text(found)
            return HttpResponse(text, "text/plain; charset=utf-8", headers=_file(key, "log"))
        headers = _file(key, "json") if file_format else None
        return Response([asdict(line) for line in found], headers=headers)


def sieve_of(request: Request) -> Sieve:
    """The query parameters; one that means nothing is refused, never ignored."""
    asked = request.query_params
    return Sieve(
        stream=one_of("stream", asked["stream"], Stream) if asked.get("stream") else "",
        text=findable("q", asked.get("q", "")),
        since=moment("since", asked["since"]) if asked.get("since") else None,
        tail=number(request, "tail", None, MOST),
    )


def _file(key: str, ending: str) -> dict[str, str]:
    """As a download; of a model's name only what every file system and header can carry."""
    safe = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in key)
    return {"Content-Disposition": f'attachment; filename="{safe[:100]}.{ending}"'}
