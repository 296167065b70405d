"""The record: searched, paged, exported, and never cleared by hand."""

from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from backendops import exporting
from backendops.api import shapes
from backendops.api.base import OperationsView, described
from backendops.api.serializers import DoneOut, HistoryOut
from backendops.models import Operation
from backendops.services import records, summaries
from backendops.services.records import Cursor, RecordIsKept, Wanted
from backendops.states import OperationState, Verb
from clustermgr.lib.api import positive
from clustermgr.lib.errors import InvalidInput
from nodes.api.base import findable, moment, one_of

PAGE, LARGEST_PAGE = 50, 500
# LocalAI's words for an outcome, and ours
OUTCOMES: dict[str, tuple[OperationState, ...]] = {
    "completed": (OperationState.SUCCEEDED,),
    "failed": (OperationState.FAILED, OperationState.PARTIAL),
    "cancelled": (OperationState.CANCELLED, OperationState.PARTLY_CANCELLED),
    "partial": (OperationState.PARTIAL,),
}
FILTERS = [
    OpenApiParameter("node", str, description="Name or id of a node."),
    OpenApiParameter("actor", str, description="Who asked for it."),
    OpenApiParameter("backend", str),
    OpenApiParameter("verb", str, enum=Verb.values),
    OpenApiParameter("outcome", str, enum=list(OUTCOMES)),
    OpenApiParameter("since", str, description="Asked for at or after this moment, RFC 3339."),
    OpenApiParameter("until", str, description="Asked for before this moment."),
    OpenApiParameter("q", str, description="Part of the backend, target, reason or author."),
]


class HistoryView(OperationsView):
    needs = {"GET": "backendops.view_operation", "DELETE": "backendops.acknowledge_operation"}

    @described(
        "listOperationHistory",
        "What is over, newest first",
        HistoryOut,
        parameters=[
            *FILTERS,
            OpenApiParameter("cursor", str, description="`next` of the page before."),
            OpenApiParameter("limit", int, description=f"At most {LARGEST_PAGE}."),
        ],
    )
    def get(self, request: Request) -> Response:
        text, limit = request.query_params.get("cursor"), positive(request, "limit", PAGE)
        rows = records.find(Operation.objects.over(), wanted(request.query_params))
        found, following = records.page(
            rows, after=Cursor.read(text) if text else None, limit=min(limit, LARGEST_PAGE)
        )
        told = summaries.summarise(found, now=timezone.now())
        shown = [shapes.record_json(one) for one in told.values()]
        return Response({"operations": shown, "next": str(following) if following else None})

    @described("clearOperationHistory", "Always refused: the record is kept", DoneOut)
    def delete(self, request: Request) -> Response:
        raise RecordIsKept(
            "The record of operations is kept: it says who changed what. Failures leave the live"
            " list by POST /api/operations/<job>/dismiss."
        )


class ExportView(OperationsView):
    needs = {"GET": "backendops.view_operation"}

    @described(
        "exportOperations",
        "Every operation node by node, as CSV or JSON",
        {
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/json"): {"type": "array", "items": {"type": "object"}},
        },
        parameters=[*FILTERS, OpenApiParameter("as", str, enum=["csv", "json"])],
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        asked = request.query_params
        rows = records.find(Operation.objects.all(), wanted(asked))
        return exporting.response(request._request, rows, kind=asked.get("as", "csv"))


def wanted(asked: Any) -> Wanted:
    """The filters of a query; one that means nothing is refused, never ignored."""
    outcome, verb = asked.get("outcome"), asked.get("verb")
    if outcome and outcome not in OUTCOMES:
        raise InvalidInput(f"outcome must be one of {', '.join(OUTCOMES)}.")
    since, until = asked.get("since"), asked.get("until")
    return Wanted(
        node=findable("node", asked.get("node", "")),
        actor=findable("actor", asked.get("actor", "")),
        backend=findable("backend", asked.get("backend", "")),
        verb=one_of("verb", verb, Verb) if verb else None,
        states=OUTCOMES[outcome] if outcome else (),
        since=moment("since", since) if since else None,
        until=moment("until", until) if until else None,
        text=findable("q", asked.get("q", "")),
    )
