"""What the endpoints of operations share: how an order is read, placed and answered."""

from collections.abc import Callable
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from backendops.api.serializers import SentenceOut
from backendops.models import Operation
from backendops.orders import Order, Target
from backendops.services import catalog, requesting
from backendops.services.requesting import Placed
from backendops.services.targeting import NeedsNamedNodes
from backendops.states import Verb
from clustermgr.lib.errors import NotFound
from clustermgr.lib.text import uuid_in
from nodes.api.base import Endpoint, OperatorView

ERRORS = (400, 401, 403, 404, 405, 406, 409, 422)
BODY_ERRORS = (413, 415)
KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key with the same request returns the same job.",
)


def described(
    operation: str,
    summary: str,
    success: Any,
    *,
    code: int = 200,
    body: Any = None,
    errors: tuple[int, ...] = (),
    **more: Any,
) -> Callable[[Endpoint], Endpoint]:
    """Describe an endpoint whose refusals carry a sentence under `error`."""
    codes = (*ERRORS, *(BODY_ERRORS if body else ()), *errors)
    successes = success if _by_code(success) else {code: success}
    decorator: Callable[[Endpoint], Endpoint] = extend_schema(
        operation_id=operation,
        summary=summary,
        request=body,
        responses={**successes, **{code: OpenApiResponse(SentenceOut) for code in codes}},
        **more,
    )
    return decorator


def _by_code(success: Any) -> bool:
    """Several shapes, each under its status; a schema's keys are words."""
    return isinstance(success, dict) and not any(isinstance(key, str) for key in success)


class OrderView(OperatorView):
    """Any view that takes orders."""

    def place(self, order: Order, target: Target, *, reason: str = "") -> Placed:
        return requesting.place(
            catalog.resolve(order),
            target,
            by=self.actor,
            now=timezone.now(),
            reason=reason,
            key=self.request.headers.get("Idempotency-Key", ""),
        )


class OperationsView(OrderView):
    """LocalAI's routes outside /api/nodes tell an error as a sentence, not as an object."""

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        response.data["error"] = response.data["detail"]
        if isinstance(exc, NeedsNamedNodes):
            response.data["meta_alternative"] = exc.meta_alternative
        return response

    def operation(self, job_id: str) -> Operation:
        key = uuid_in(job_id)
        found = Operation.objects.filter(pk=key).first() if key else None
        if found is None:
            raise NotFound(f"There is no operation {job_id}.")
        return found


def order_of(verb: Verb, asked: dict[str, Any]) -> Order:
    """What a body with LocalAI's keys asks for."""
    return Order.of(
        verb,
        backend=asked.get("backend", ""),
        galleries=asked.get("backend_galleries", ()),
        uri=asked.get("uri", ""),
        name=asked.get("name", ""),
        alias=asked.get("alias", ""),
    )


def status_url(operation: Operation) -> str:
    return f"/api/backends/job/{operation.pk}"


def accepted(placed: Placed) -> dict[str, Any]:
    """LocalAI's answer to an order; nothing has been sent to a node yet."""
    operation = placed.operation
    started = "was queued" if placed.created else "was asked for before; this is the same job"
    return {
        "jobID": str(operation.pk),
        "statusUrl": status_url(operation),
        "message": f"{operation.verb} of {operation.backend} ({operation.target}) {started}",
        "created": placed.created,
        "skipped": operation.skipped,
    }
