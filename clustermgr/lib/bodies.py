"""Request bodies: bounded, whole, and read strictly.

Apart from api.py, because DRF imports its parsers while it imports itself.
"""

from typing import Any, Protocol

from django.conf import settings
from django.http import HttpRequest
from rest_framework.parsers import BaseParser

from clustermgr.lib import gojson
from clustermgr.lib.errors import TooLarge


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def bounded(stream: Readable) -> bytes:
    """What is in `stream`, read no further than the largest body we take."""
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise TooLarge(f"The body is larger than {limit} bytes.")
    return raw


def with_length(request: HttpRequest) -> None:
    """Give a body that came in chunks its length: DRF takes one without for no body at all.

    An empty body is a sensible request, and means something else than the one that was sent.
    """
    if not request.META.get("CONTENT_LENGTH"):
        request._body = request.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        request.META["CONTENT_LENGTH"] = str(len(request._body))


class JsonBody(BaseParser):
    """In place of DRF's own, which falls over when bodies are large or nested deep enough."""

    media_type = "application/json"

    def parse(
        self, stream: Readable, media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        return gojson.parse_unambiguous(bounded(stream))
