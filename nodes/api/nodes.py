"""Nodes for operators and scripts: LocalAI's paths, and the verbs it lacks."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.api import paged_array
from clustermgr.lib.errors import Conflict, InvalidInput
from nodes.api.base import (
    PAGING,
    OperatorView,
    findable,
    node_response,
    nodes_json,
    one_of,
    operator_schema,
)
from nodes.api.serializers import (
    ApprovedOut,
    ClusterOut,
    DrainIn,
    MessageOut,
    NodeOut,
    ReasonIn,
)
from nodes.api.worker_serializers import ReplicaOut
from nodes.models import BackendNode, NodeModel
from nodes.querysets import BackendNodeQuerySet
from nodes.selectors import Selector
from nodes.services import (
    credentials,
    draining,
    lifecycle,
    overview,
    registration,
    retirement,
    sweeping,
)
from nodes.states import Liveness, NodeStatus, NodeType
from nodes.wire import granted_json

VIEW = {"GET": "nodes.view_backendnode"}
ORDERINGS = ("name", "last_heartbeat", "total_vram", "available_vram", "created_at")
FILTERS = [
    OpenApiParameter("status", str, enum=NodeStatus.values),
    OpenApiParameter("type", str, enum=NodeType.values),
    OpenApiParameter("gpu", str, description="GPU vendor; `none` for machines without."),
    OpenApiParameter("label", str, description="A selector: tier=fast,gpu.vram in (24GB,48GB)"),
    OpenApiParameter("search", str, description="Part of the name."),
    OpenApiParameter("ordering", str, enum=[*ORDERINGS, *(f"-{name}" for name in ORDERINGS)]),
    *PAGING,
]


class NodeListView(OperatorView):
    needs = VIEW

    @operator_schema(
        "listNodes", "Every node that is not retired", NodeOut(many=True), parameters=FILTERS
    )
    def get(self, request: Request) -> Response:
        rows = filtered(BackendNode.objects.with_load(), request.query_params)
        return paged_array(request, rows, nodes_json)


class NodeView(OperatorView):
    needs = {**VIEW, "DELETE": "nodes.retire_backendnode"}

    @operator_schema("getNode", "One node", NodeOut)
    def get(self, request: Request, node_id: str) -> Response:
        return node_response(self.node(node_id))

    @operator_schema("deleteNode", "Retire a node that is away", MessageOut)
    def delete(self, request: Request, node_id: str) -> Response:
        """Retire a node that is away. A live one would beat on into nowhere: retire it by name."""
        node = self.node(node_id)
        if node.retired_at is None and node.liveness != Liveness.OFFLINE:
            raise Conflict(f"{node.name} is alive; use POST /api/nodes/{node.pk}/retire instead.")
        retirement.retire(node, by=self.actor, reason="deleted through the API", now=timezone.now())
        return Response({"message": "node deregistered"})


class ApproveView(OperatorView):
    needs = {"POST": "nodes.approve_backendnode"}

    @operator_schema("approveNode", "Let a pending node work", ApprovedOut)
    def post(self, request: Request, node_id: str) -> Response:
        now = timezone.now()
        node = registration.approve(self.node(node_id), by=self.actor, now=now)
        granted = credentials.mint(node, now=now)
        facts = {"id": str(node.pk), "name": node.name, "node_type": node.node_type}
        keys = granted_json(jwt=granted.jwt, seed=granted.seed)
        return Response({**facts, "status": node.status, "message": "node approved", **keys})


class DrainView(OperatorView):
    needs = {"POST": "nodes.drain_backendnode"}

    @operator_schema(
        "drainNode", "Take a node out of rotation until it is empty", MessageOut, body=DrainIn
    )
    def post(self, request: Request, node_id: str) -> Response:
        asked, now = self.valid(DrainIn), timezone.now()
        seconds = asked["deadline_seconds"]
        deadline = now + timedelta(seconds=seconds) if seconds else None
        draining.drain(
            self.node(node_id), by=self.actor, reason=asked["reason"], deadline=deadline, now=now
        )
        return Response({"message": "node set to draining"})


class ResumeView(OperatorView):
    needs = {"POST": "nodes.drain_backendnode"}

    @operator_schema("resumeNode", "End a drain, whoever ordered it", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        draining.resume(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "node resumed"})


class StopWorkerView(OperatorView):
    needs = {"POST": "nodes.drain_backendnode"}

    @operator_schema("stopWorker", "Have a drained node's worker exit", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        """Ask for it any time during the drain: the worker is told when the node is empty."""
        draining.stop_worker(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "worker stops when the node is empty"})


class CordonView(OperatorView):
    needs = {"POST": "nodes.cordon_backendnode"}

    @operator_schema("cordonNode", "Put nothing new on a node", MessageOut, body=ReasonIn)
    def post(self, request: Request, node_id: str) -> Response:
        reason = self.valid(ReasonIn)["reason"]
        lifecycle.cordon(self.node(node_id), by=self.actor, reason=reason, now=timezone.now())
        return Response({"message": "node cordoned"})


class UncordonView(OperatorView):
    needs = {"POST": "nodes.cordon_backendnode"}

    @operator_schema("uncordonNode", "Let new work come to a node again", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        lifecycle.uncordon(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "node uncordoned"})


class ReleaseView(OperatorView):
    needs = {"POST": "nodes.cordon_backendnode"}

    @operator_schema("releaseNode", "End a quarantine before its time", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        sweeping.release_quarantine(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "node released from quarantine"})


class RetireView(OperatorView):
    needs = {"POST": "nodes.retire_backendnode"}

    @operator_schema("retireNode", "Send a node away for good", MessageOut, body=ReasonIn)
    def post(self, request: Request, node_id: str) -> Response:
        reason = self.valid(ReasonIn)["reason"]
        retirement.retire(self.node(node_id), by=self.actor, reason=reason, now=timezone.now())
        return Response({"message": "node retired"})


class ReadmitView(OperatorView):
    needs = {"POST": "nodes.retire_backendnode"}

    @operator_schema("readmitNode", "Undo a retirement; the node waits for approval", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        retirement.readmit(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "node readmitted; it waits for approval"})


class ReleaseTokenView(OperatorView):
    needs = {"POST": "nodes.retire_backendnode"}

    @operator_schema(
        "releaseNodeToken", "Let the next registration bring another token", MessageOut
    )
    def post(self, request: Request, node_id: str) -> Response:
        retirement.release_token(self.node(node_id), by=self.actor, now=timezone.now())
        return Response({"message": "the next registration may use another token"})


class RevokeCredentialsView(OperatorView):
    needs = {"POST": "nodes.retire_backendnode"}

    @operator_schema("revokeNodeCredentials", "Cut a node off the bus", MessageOut, body=ReasonIn)
    def post(self, request: Request, node_id: str) -> Response:
        reason = self.valid(ReasonIn)["reason"]
        credentials.revoke(self.node(node_id), by=self.actor, reason=reason, now=timezone.now())
        return Response({"message": "credentials revoked"})


class NodeModelsView(OperatorView):
    needs = {"GET": "nodes.view_nodemodel"}

    @operator_schema("listNodeModels", "Every replica on one node", ReplicaOut(many=True))
    def get(self, request: Request, node_id: str) -> Response:
        rows = self.node(node_id).replicas.order_by("model_name", "replica_index")
        return Response(ReplicaOut(rows, many=True).data)


class ServingModelsView(OperatorView):
    needs = {"GET": "nodes.view_nodemodel"}

    @operator_schema(
        "listServingModels",
        "Every replica that can serve right now",
        ReplicaOut(many=True),
        parameters=PAGING,
    )
    def get(self, request: Request) -> Response:
        rows = NodeModel.objects.serving().order_by("model_name", "node__name", "replica_index")
        return paged_array(request, rows, lambda page: ReplicaOut(page, many=True).data)


class ClusterView(OperatorView):
    needs = VIEW

    @operator_schema("getCluster", "The cluster in a handful of numbers", ClusterOut)
    def get(self, request: Request) -> Response:
        return Response(ClusterOut(overview.cluster()).data)


def filtered(rows: BackendNodeQuerySet, asked: Any) -> BackendNodeQuerySet:
    """Apply the query parameters; one that means nothing is refused, never ignored."""
    status = asked.get("status")
    rows = rows.in_status(one_of("status", status, NodeStatus)) if status else rows.present()
    if kind := asked.get("type"):
        rows = rows.filter(node_type=one_of("type", kind, NodeType))
    if gpu := asked.get("gpu"):
        rows = rows.filter(gpu_vendor="" if gpu == "none" else findable("gpu", gpu))
    if label := asked.get("label"):
        rows = rows.matching(Selector.parse(label))
    if search := asked.get("search"):
        rows = rows.filter(name__icontains=findable("search", search))
    ordering = asked.get("ordering") or "name"
    if ordering.removeprefix("-") not in ORDERINGS:
        raise InvalidInput(f"ordering must be one of {', '.join(ORDERINGS)}, or - and one of them.")
    return rows.order_by(ordering, "name")
