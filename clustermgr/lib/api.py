"""What every endpoint shares: one error envelope, one way of paging."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404
from rest_framework import exceptions
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_handler

from clustermgr.lib.errors import DomainError, InvalidInput

# What LocalAI's clients tell apart
KINDS = {401: "authentication_error", 403: "authorization_error"}
LARGEST_NUMBER = 9  # digits; Python refuses to read numbers of some thousand


class Pages(PageNumberPagination):
    """`?page=` and `?page_size=`; a page is never larger than a client can be trusted with."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500


def paged_array(
    request: Request,
    rows: QuerySet,
    show: Callable[[list[Any]], Any],
    *,
    page_size: int | None = None,
) -> Response:
    """A bare JSON array, as LocalAI answers; paging, when asked for, is told in the headers.

    Without `page_size` everything comes at once, because clients written for LocalAI expect
    the whole list and would never notice a missing half.
    """
    if page_size is None and "page" in request.query_params:
        page_size = Pages.page_size
    size = number(request, "page_size", page_size, Pages.max_page_size)
    if size is None:
        return Response(show(list(rows)))
    page, total = number(request, "page", 1, None) or 1, rows.count()
    shown = show(list(rows[(page - 1) * size : page * size]))
    return Response(shown, headers={"X-Total-Count": str(total), "X-Page": str(page)})


def number(request: Request, name: str, default: int | None, limit: int | None) -> int | None:
    """A positive number among the query parameters, at most `limit`, or a refusal."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > LARGEST_NUMBER or not int(text):
        raise InvalidInput(f"{name} must be a positive number.")
    return min(int(text), limit) if limit else int(text)


def positive(request: Request, name: str, default: int) -> int:
    """A query parameter that counts something."""
    return number(request, name, default, None) or default


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Turn refusals into one envelope; leave bugs to Django's 500."""
    if isinstance(error, DomainError):
        return _refused(error)
    response = drf_handler(error, context)
    if response is None:
        return None
    answer = refusal(response.status_code, _code(error), _sentence(error))
    if isinstance(error, exceptions.ValidationError):
        answer.data["errors"] = error.detail
    for name, value in response.headers.items():  # WWW-Authenticate, Retry-After, Allow
        answer.headers[name] = value
    return answer


def envelope(error: DomainError) -> dict[str, Any]:
    """A refusal as everybody is told it, at the doors as well."""
    return {**_told(error.http_status, error.code, str(error)), **error.told}


def _refused(error: DomainError) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    return Response(envelope(error), status=error.http_status, headers=headers)


def refusal(status: int, code: str, detail: str) -> Response:
    return Response(_told(status, code, detail), status=status)


def _told(status: int, code: str, detail: str) -> dict[str, Any]:
    """Our envelope; `error` repeats it in the shape that LocalAI's clients read."""
    error = {"code": status, "message": detail, "type": KINDS.get(status, "node_error")}
    return {"code": code, "detail": detail, "error": error}


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
