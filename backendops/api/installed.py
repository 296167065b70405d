"""What one node has, and orders for that node; LocalAI's paths and two more verbs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from backendops.api.base import KEY, OrderView, accepted, order_of
from backendops.api.catalog_serializers import InstalledOut
from backendops.api.catalog_shapes import installed_json
from backendops.api.serializers import AcceptedOut, BackendIn, InstallIn
from backendops.models import NodeInventory
from backendops.orders import Target
from backendops.services import inventory, targeting, waiting
from backendops.services.requesting import Placed
from backendops.states import OpState, Verb
from clustermgr.lib.bus import default_bus
from clustermgr.lib.errors import Conflict, NodeRefused
from nodes.api.base import BODY_ERRORS, ERRORS, Endpoint, OperatorView, truth
from nodes.api.serializers import ErrorOut, MessageOut
from nodes.gateway import NodeGateway
from nodes.models import BackendNode
from nodes.states import NodeType

ASK_WITHIN = timedelta(seconds=5)  # a request waits for the answer; LocalAI's waits 30 s


MORE_ERRORS = {code: OpenApiResponse(ErrorOut) for code in (422, 502, 503, 504)}
ACCEPTED = {202: AcceptedOut, **ERRORS, **BODY_ERRORS, **MORE_ERRORS}


def order_schema(
    operation: str, summary: str, body: Any, *, done: Any = None
) -> Callable[[Endpoint], Endpoint]:
    """Describe an order for one node; `done` is answered when it was over at once."""
    responses = {**ACCEPTED, **({200: done} if done else {})}
    decorator: Callable[[Endpoint], Endpoint] = extend_schema(
        operation_id=operation,
        summary=summary,
        request=body,
        responses=responses,
        parameters=[KEY],
    )
    return decorator


class NodeBackendsView(OperatorView):
    needs = {"GET": "backendops.view_nodebackend"}

    @extend_schema(
        operation_id="listNodeBackends",
        summary="What is on a node's disk, as it last told",
        responses={200: InstalledOut(many=True), **ERRORS, **MORE_ERRORS},
        parameters=[OpenApiParameter("refresh", bool, description="Ask the node now.")],
    )
    def get(self, request: Request, node_id: str) -> Response:
        """A node that never told is asked once; one that does not answer is a 503 with why."""
        node = self.node(node_id)
        if node.node_type != NodeType.BACKEND:
            return Response([])
        refresh = truth("refresh", request.query_params.get("refresh", "false"))
        told = NodeInventory.objects.filter(node=node, observed_at__isnull=False)
        if refresh or not told.exists():
            _ask(node)
        return Response([installed_json(row) for row in node.backends.order_by("name")])


class NodeOrderView(OrderView):
    needs = {"POST": "backendops.request_operation"}

    def order(self, verb: Verb, node_id: str, body: Any) -> Placed:
        asked = self.valid(body)
        despite = asked.get("despite_mismatch", False)
        target = Target(nodes=(self.node(node_id).pk,), despite_mismatch=despite)
        return self.place(order_of(verb, asked), target, reason=asked["reason"])


class InstallView(NodeOrderView):
    @order_schema("installOnNode", "Install a backend on a node", InstallIn)
    def post(self, request: Request, node_id: str) -> Response:
        return Response(accepted(self.order(Verb.INSTALL, node_id, InstallIn)), status=202)


class UpgradeView(NodeOrderView):
    @order_schema("upgradeOnNode", "Upgrade a backend where it is installed", BackendIn)
    def post(self, request: Request, node_id: str) -> Response:
        return Response(accepted(self.order(Verb.UPGRADE, node_id, BackendIn)), status=202)


class ReinstallView(NodeOrderView):
    @order_schema("reinstallOnNode", "Download a backend again, whatever is there", InstallIn)
    def post(self, request: Request, node_id: str) -> Response:
        return Response(accepted(self.order(Verb.REINSTALL, node_id, InstallIn)), status=202)


class StopView(NodeOrderView):
    @order_schema("stopOnNode", "Stop a backend's processes; its files stay", BackendIn)
    def post(self, request: Request, node_id: str) -> Response:
        return Response(accepted(self.order(Verb.STOP, node_id, BackendIn)), status=202)


class DeleteView(NodeOrderView):
    @order_schema(
        "deleteOnNode",
        "Delete a backend from a node; 202 with the job when that takes longer",
        BackendIn,
        done=MessageOut,
    )
    def post(self, request: Request, node_id: str) -> Response:
        placed = self.order(Verb.DELETE, node_id, BackendIn)
        [op] = placed.operation.ops.all()
        match waiting.ended(op, within=settings.CLUSTER.answer_within):
            case OpState.SUCCEEDED:
                return Response({"message": "backend deleted"})
            case OpState.FAILED | OpState.DEAD:
                op.refresh_from_db()
                raise NodeRefused(op.last_error)
        return Response(accepted(placed), status=202)


def _ask(node: BackendNode) -> None:
    """Ask the node now and store what it tells; a refusal says why it does not."""
    if why := targeting.obstacle(node):
        raise Conflict(why)
    patient = replace(settings.CLUSTER, list_timeout=ASK_WITHIN)
    gateway = NodeGateway(default_bus(), cluster=patient)
    told = inventory.ask([node.pk], gateway=gateway, now=timezone.now())[node.pk]
    if not isinstance(told, tuple):
        raise told
