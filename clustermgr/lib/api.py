"""What every endpoint shares: one error envelope, one way of paging."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.pagination import PageNumberPagination
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_handler

from clustermgr.lib.errors import DomainError


class Pages(PageNumberPagination):
    """`?page=` and `?page_size=`; a page is never larger than a client can be trusted with."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Turn refusals into `{"code", "detail"}`; leave bugs to Django's 500."""
    if isinstance(error, DomainError):
        return Response({"code": error.code, "detail": str(error)}, status=error.http_status)
    response = drf_handler(error, context)
    if response is None:
        return None
    response.data = {"code": _code(error), "detail": _sentence(error)}
    if isinstance(error, exceptions.ValidationError):
        response.data["errors"] = error.detail
    return response


def _code(error: Exception) -> str:
    if isinstance(error, Http404):
        return "not_found"
    if isinstance(error, PermissionDenied):
        return "permission_denied"
    if isinstance(error, exceptions.ValidationError):
        return "invalid_input"
    return str(getattr(error, "default_code", "error"))


def _sentence(error: Exception) -> str:
    if isinstance(error, exceptions.ValidationError):
        return "; ".join(_flatten(error.detail))
    if isinstance(error, Http404):
        return "There is no such thing here."
    return str(getattr(error, "detail", error) or "Refused.")


def _flatten(detail: Any, path: str = "") -> list[str]:
    if isinstance(detail, dict):
        return [
            line
            for key, value in detail.items()
            for line in _flatten(value, key if key != "non_field_errors" else path)
        ]
    if isinstance(detail, list):
        return [line for value in detail for line in _flatten(value, path)]
    return [f"{path}: {detail}" if path else str(detail)]
