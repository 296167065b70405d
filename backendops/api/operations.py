"""Operations: what is under way, one of them, and what can be done about it."""

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from backendops.api import shapes
from backendops.api.base import KEY, OperationsView, accepted, described, order_of
from backendops.api.serializers import (
    AcceptedOut,
    CountOut,
    DoneOut,
    JobOut,
    LiveOut,
    OperationDetailOut,
    OperationIn,
    OpOut,
    PreviewOut,
)
from backendops.models import Operation, PendingBackendOp
from backendops.orders import Order, Target
from backendops.services import cancelling, catalog, queueing, redriving, requesting, summaries
from backendops.services.targeting import named_nodes
from backendops.states import OpState, Verb
from clustermgr.lib.api import paged_array
from clustermgr.lib.errors import Conflict
from nodes.api.base import PAGING, one_of
from nodes.api.serializers import ReasonIn
from nodes.selectors import Selector

VIEW = {"GET": "backendops.view_operation"}
MOST_LIVE = 500


class CannotPause(Conflict):
    """Workers have no such command."""

    code = "cannot_pause"


class OperationListView(OperationsView):
    needs = {**VIEW, "POST": "backendops.request_operation"}

    @described("listOperations", "What is under way, and failures nobody dismissed", LiveOut)
    def get(self, request: Request) -> Response:
        """The least advanced first, as LocalAI sorts them."""
        found = list(Operation.objects.live().order_by("-requested_at", "-id")[: MOST_LIVE + 1])
        now = timezone.now()
        live = summaries.summarise(found[:MOST_LIVE], now=now).values()
        places = queueing.places(op for one in live for op in one.ops)
        shown = [shapes.operation_json(one, places, now=now) for one in live]
        shown.sort(key=lambda item: (item["progress"], item["id"]))
        return Response({"operations": shown, "more": len(found) > MOST_LIVE})

    @described(
        "requestOperation",
        "Order something on many nodes, or see what the order would do",
        {202: AcceptedOut, 200: PreviewOut},
        body=OperationIn,
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(OperationIn)
        order = order_of(Verb(asked["verb"]), asked)
        target = Target(
            nodes=named_nodes(asked["nodes"]),
            selector=Selector.parse(asked["selector"]) if asked["selector"] else None,
            everyone=asked["all"],
            despite_mismatch=asked["despite_mismatch"],
        )
        if asked["dry_run"]:
            return _preview(catalog.resolve(order), target)
        placed = self.place(order, target, reason=asked["reason"])
        return Response(accepted(placed), status=202)


class OperationView(OperationsView):
    needs = VIEW

    @described("getOperation", "One operation with everything about it", OperationDetailOut)
    def get(self, request: Request, job_id: str) -> Response:
        now = timezone.now()
        one = summaries.summary(self.operation(job_id), now=now)
        return Response(shapes.detail_json(one, queueing.places(one.ops), now=now))


class OperationOpsView(OperationsView):
    needs = {"GET": "backendops.view_pendingbackendop"}

    @described(
        "listOperationNodes",
        "Each node's share of an operation",
        OpOut(many=True),
        parameters=[OpenApiParameter("state", str, enum=OpState.values), *PAGING],
    )
    def get(self, request: Request, job_id: str) -> Response:
        rows = PendingBackendOp.objects.filter(operations=self.operation(job_id))
        if state := request.query_params.get("state"):
            rows = rows.filter(state=one_of("state", state, OpState))
        ordered = rows.select_related("node").order_by("node__name", "id")
        return paged_array(request, ordered, _shown)


class JobView(OperationsView):
    needs = VIEW

    @described("getJob", "How far an operation is, as LocalAI tells it", JobOut)
    def get(self, request: Request, job_id: str) -> Response:
        one = summaries.summary(self.operation(job_id), now=timezone.now())
        return Response(shapes.job_json(one))


class JobAliasView(JobView):
    @described("getBackendJob", "The same under LocalAI's other path", JobOut)
    def get(self, request: Request, job_id: str) -> Response:
        return super().get(request, job_id)


class CancelView(OperationsView):
    needs = {"POST": "backendops.cancel_operation"}

    @described("cancelOperation", "Stop what can be stopped of it", CountOut, body=ReasonIn)
    def post(self, request: Request, job_id: str) -> Response:
        reason, operation = self.valid(ReasonIn)["reason"], self.operation(job_id)
        count = cancelling.cancel(operation, by=self.actor, reason=reason, now=timezone.now())
        words = f"{operation} is being cancelled on {count} nodes"
        return Response({"success": True, "message": words, "count": count})


class PauseView(OperationsView):
    needs = {"POST": "backendops.cancel_operation"}

    @described("pauseOperation", "Always refused: workers cannot pause", DoneOut)
    def post(self, request: Request, job_id: str) -> Response:
        operation = self.operation(job_id)
        raise CannotPause(
            f"Workers cannot pause; {operation} goes on. Cancel it and order it again instead."
        )


class DismissView(OperationsView):
    needs = {"POST": "backendops.acknowledge_operation"}

    @described("dismissOperation", "Take a failure off the live list", DoneOut)
    def post(self, request: Request, job_id: str) -> Response:
        redriving.acknowledge(self.operation(job_id), by=self.actor, now=timezone.now())
        return Response({"success": True, "message": "dismissed; it stays in the record"})


class RetryView(OperationsView):
    needs = {"POST": "backendops.request_operation"}

    @described("retryOperation", "Ask again on the nodes that failed", AcceptedOut, code=202)
    def post(self, request: Request, job_id: str) -> Response:
        placed = redriving.retry(self.operation(job_id), by=self.actor, now=timezone.now())
        return Response(accepted(placed), status=202)


def _shown(ops: list[PendingBackendOp]) -> list[shapes.Json]:
    places, now = queueing.places(ops), timezone.now()
    return [shapes.op_json(op, places.get(op.pk), now=now) for op in ops]


def _preview(order: Order, target: Target) -> Response:
    chosen, sorting = requesting.preview(order, target)
    return Response(shapes.preview_json(order, chosen, sorting))
