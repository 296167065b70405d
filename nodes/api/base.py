"""What the operator's endpoints share: a permission per verb, one node by its id, ETags."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from clustermgr.lib.bodies import with_length
from clustermgr.lib.errors import InvalidInput, NotFound
from clustermgr.lib.text import checked
from nodes.api.serializers import ErrorOut, NodeOut
from nodes.models import BackendNode
from nodes.services import labels

Endpoint = TypeVar("Endpoint", bound=Callable[..., HttpResponseBase])
ERRORS = {code: OpenApiResponse(ErrorOut) for code in (400, 401, 403, 404, 405, 406, 409, 412)}
# Only who sends a body can send a wrong one
BODY_ERRORS = {code: OpenApiResponse(ErrorOut) for code in (413, 415)}
VERSION = re.compile(r'(?:W/)?"?([0-9]{1,19})"?')
TRUTHS = {"true": True, "1": True, "false": False, "0": False}
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="The ETag the edit is based on."
)


PAGING = [
    OpenApiParameter("page", int),
    OpenApiParameter("page_size", int, description="Lists of LocalAI's come whole without it."),
]


def operator_schema(
    operation: str,
    summary: str,
    success: Any,
    *,
    code: int = 200,
    body: Any = None,
    errors: dict[int, Any] | None = None,
    **more: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Describe an endpoint: its name for programs, its promise for people, its shapes."""
    decorator: Callable[[Endpoint], Endpoint] = extend_schema(
        operation_id=operation,
        summary=summary,
        request=body,
        responses={
            code: success or OpenApiResponse(),
            **ERRORS,
            **(BODY_ERRORS if body else {}),
            **(errors or {}),
        },
        **more,
    )
    return decorator


class HasVerbPermission(BasePermission):
    """The view says which permissions each method needs; a method it does not name is refused.

    One that it does not have needs none: nobody may, which is 405 and not 403.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not hasattr(view, str(request.method).lower()):
            return True
        needed = getattr(view, "needs", {}).get(
            "GET" if request.method == "HEAD" else request.method
        )
        if needed is None:
            return False
        return request.user.has_perms([needed] if isinstance(needed, str) else needed)


class OperatorView(APIView):
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, HasVerbPermission)
    needs: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        with_length(request)
        return super().initialize_request(request, *args, **kwargs)

    @property
    def actor(self) -> str:
        return self.request.user.get_username()

    def node(self, node_id: str) -> BackendNode:
        try:
            found = BackendNode.objects.with_load().filter(pk=UUID(node_id)).first()
        except ValueError:
            found = None
        if found is None:
            raise NotFound(f"There is no node {node_id}.")
        return found

    def expected_version(self) -> int | None:
        """The version the caller edits, from If-Match; None when it does not care."""
        tag = self.request.headers.get("If-Match", "*")
        if tag == "*":
            return None
        found = VERSION.fullmatch(tag)
        if found is None:
            raise InvalidInput("If-Match must be an ETag that this API gave out.")
        return int(found[1])

    def valid(self, serializer: Any) -> dict[str, Any]:
        body = serializer(data=self.request.data)
        body.is_valid(raise_exception=True)
        validated: dict[str, Any] = body.validated_data
        return validated


def one_of(name: str, value: str, choices: Any) -> Any:
    """A query parameter's value among `choices`, or a refusal: a typo must not mean everything."""
    if value not in choices.values:
        raise InvalidInput(f"{name} must be one of {', '.join(choices.values)}.")
    return choices(value)


def findable(name: str, value: str) -> str:
    """A query parameter's value if a row could hold it."""
    return checked(value, field=name, limit=1024)


def truth(name: str, text: str) -> bool:
    """A query parameter that is true or false."""
    if text.lower() not in TRUTHS:
        raise InvalidInput(f"{name} must be true or false.")
    return TRUTHS[text.lower()]


def moment(name: str, text: str) -> datetime:
    """A query parameter that is a moment."""
    try:
        found = parse_datetime(text.replace(" ", "+"))  # a + in a query string is a space
        if found is not None and found.tzinfo is not None:
            return found.astimezone(UTC)  # PostgreSQL does not know every offset that Python does
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{name} must be a moment in RFC 3339, like 2030-01-01T12:00:00Z.")


def etag(node: BackendNode) -> dict[str, str]:
    return {"ETag": f'"{node.version}"'}


def node_response(node: BackendNode) -> Response:
    """One node as everybody sees it, with the ETag its next edit needs."""
    return Response(nodes_json([node])[0], headers=etag(node))


def nodes_json(nodes: list[BackendNode]) -> list[dict[str, Any]]:
    """Many nodes in a constant number of queries."""
    context = {"labels": labels.effective([node.pk for node in nodes])}
    return list(NodeOut(nodes, many=True, context=context).data)
