"""What the operator's endpoints share: a permission per verb, one node by its id, ETags."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from clustermgr.lib.errors import InvalidInput, NotFound
from nodes.api.serializers import ErrorOut, NodeOut
from nodes.models import BackendNode
from nodes.services import labels

Endpoint = TypeVar("Endpoint", bound=Callable[..., Response])
ERRORS = {code: OpenApiResponse(ErrorOut) for code in (400, 401, 403, 404, 409, 412)}
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="The ETag the edit is based on."
)


def operator_schema(
    success: Any, *, code: int = 200, body: Any = None, **more: Any
) -> Callable[[Endpoint], Endpoint]:
    responses = {code: success or OpenApiResponse(), **ERRORS}
    decorator: Callable[[Endpoint], Endpoint] = extend_schema(
        request=body, responses=responses, **more
    )
    return decorator


class HasVerbPermission(BasePermission):
    """The view says which permission each method needs; a method it does not name is refused."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needed = getattr(view, "needs", {}).get(
            "GET" if request.method == "HEAD" else request.method
        )
        return needed is not None and request.user.has_perm(needed)


class OperatorView(APIView):
    permission_classes = (IsAuthenticated, HasVerbPermission)
    needs: ClassVar[dict[str, str]] = {}

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
        number = tag.removeprefix("W/").strip('"')
        if not number.isdecimal():
            raise InvalidInput("If-Match must be an ETag that this API gave out.")
        return int(number)

    def valid(self, serializer: Any) -> dict[str, Any]:
        body = serializer(data=self.request.data)
        body.is_valid(raise_exception=True)
        validated: dict[str, Any] = body.validated_data
        return validated


def etag(node: BackendNode) -> dict[str, str]:
    return {"ETag": f'"{node.version}"'}


def node_response(node: BackendNode) -> Response:
    """One node as everybody sees it, with the ETag its next edit needs."""
    return Response(nodes_json([node])[0], headers=etag(node))


def nodes_json(nodes: list[BackendNode]) -> list[dict[str, Any]]:
    """Many nodes in a constant number of queries."""
    context = {"labels": labels.effective([node.pk for node in nodes])}
    return list(NodeOut(nodes, many=True, context=context).data)
