"""Labels, taints and capacity overrides; each edit honours If-Match."""

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.errors import InvalidInput
from nodes.api.base import IF_MATCH, OperatorView, etag, operator_schema
from nodes.api.serializers import (
    BudgetIn,
    BudgetOut,
    ResetOut,
    SlotsIn,
    SlotsOut,
    TaintOut,
)
from nodes.labelling import MAX_LABELS, MAX_VALUE
from nodes.models import BackendNode
from nodes.services import capacity, labels, taints
from nodes.taints import Taint

EDIT = "nodes.label_backendnode"
LABELS = {
    "type": "object",
    "maxProperties": MAX_LABELS,
    "additionalProperties": {"type": "string", "maxLength": MAX_VALUE},
}


class LabelsView(OperatorView):
    needs = {"GET": "nodes.view_backendnode", "PUT": EDIT, "PATCH": EDIT}

    @operator_schema("listNodeLabels", "The labels in effect, whoever set them", LABELS)
    def get(self, request: Request, node_id: str) -> Response:
        return self._labels(self.node(node_id))

    @operator_schema(
        "replaceNodeLabels",
        "Replace the labels that operators set",
        LABELS,
        body={"application/json": LABELS},
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, node_id: str) -> Response:
        """Replace the labels that operators set; a worker's own stay its own."""
        return self._edit(labels.replace_admin, node_id)

    @operator_schema(
        "mergeNodeLabels",
        "Set these labels and leave the others alone",
        LABELS,
        body={"application/json": LABELS},
        parameters=[IF_MATCH],
    )
    def patch(self, request: Request, node_id: str) -> Response:
        return self._edit(labels.merge_admin, node_id)

    def _edit(self, service: labels.Edit, node_id: str) -> Response:
        if not isinstance(self.request.data, dict):
            raise InvalidInput("The body must be an object of label keys and values.")
        node = service(
            self.node(node_id),
            self.request.data,
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return self._labels(node)

    def _labels(self, node: BackendNode) -> Response:
        return Response(labels.effective([node.pk]).get(node.pk, {}), headers=etag(node))


class LabelView(OperatorView):
    needs = {"DELETE": EDIT}

    @operator_schema(
        "deleteNodeLabel", "Take an operator's label away", None, code=204, parameters=[IF_MATCH]
    )
    def delete(self, request: Request, node_id: str, key: str) -> Response:
        labels.remove_admin(
            self.node(node_id),
            key,
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response(status=204)


class TaintsView(OperatorView):
    needs = {"GET": "nodes.view_backendnode", "PUT": EDIT}

    @operator_schema("listNodeTaints", "What keeps work away from a node", TaintOut(many=True))
    def get(self, request: Request, node_id: str) -> Response:
        node = self.node(node_id)
        return Response(TaintOut(node.taints.all(), many=True).data, headers=etag(node))

    @operator_schema(
        "replaceNodeTaints",
        "Give a node exactly these taints",
        TaintOut(many=True),
        body=TaintOut(many=True),
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, node_id: str) -> Response:
        body = TaintOut(data=request.data, many=True)
        body.is_valid(raise_exception=True)
        node = taints.replace(
            self.node(node_id),
            [Taint(**taint) for taint in body.validated_data],
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response(TaintOut(node.taints.all(), many=True).data, headers=etag(node))


class MaxReplicasView(OperatorView):
    needs = {"PUT": EDIT, "DELETE": EDIT}

    @operator_schema(
        "setMaxReplicas",
        "Fix how many replicas of one model fit",
        SlotsOut,
        body=SlotsIn,
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, node_id: str) -> Response:
        node = capacity.set_max_replicas(
            self.node(node_id),
            self.valid(SlotsIn)["value"],
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        value = node.max_replicas_per_model
        return Response({"max_replicas_per_model": value}, headers=etag(node))

    @operator_schema(
        "resetMaxReplicas", "Go back to the worker's own number", ResetOut, parameters=[IF_MATCH]
    )
    def delete(self, request: Request, node_id: str) -> Response:
        node = capacity.reset_max_replicas(
            self.node(node_id),
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response({"reset": True}, headers=etag(node))


class VramBudgetView(OperatorView):
    needs = {"PUT": EDIT, "DELETE": EDIT}

    @operator_schema(
        "setVramBudget",
        "Fix how much VRAM may be used",
        BudgetOut,
        body=BudgetIn,
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, node_id: str) -> Response:
        node = capacity.set_vram_budget(
            self.node(node_id),
            self.valid(BudgetIn)["value"],
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response({"vram_budget": node.vram_budget}, headers=etag(node))

    @operator_schema(
        "resetVramBudget", "Go back to the worker's own budget", ResetOut, parameters=[IF_MATCH]
    )
    def delete(self, request: Request, node_id: str) -> Response:
        node = capacity.reset_vram_budget(
            self.node(node_id),
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response({"reset": True}, headers=etag(node))
