"""Load, unload and move now; and why a model has the replicas it has."""

from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.errors import NotFound
from nodes.api.base import OperatorView, findable, operator_schema
from nodes.api.serializers import ErrorOut, MessageOut
from nodes.models import NodeModel
from scheduling.api.planning_shapes import WhyOut
from scheduling.api.serializers import (
    LoadIn,
    LoadJobOut,
    ModelNameIn,
    MoveIn,
    UnloadedOut,
    UnloadIn,
)
from scheduling.api.shapes import job_json
from scheduling.services import acting, asking, stopping

OPERATE = "scheduling.operate_model"
# Nobody has room, or the model fails: it may work later
LATER = {503: OpenApiResponse(ErrorOut)}


class LoadView(OperatorView):
    needs = {"POST": OPERATE}

    @operator_schema(
        "loadModel", "Load one more replica", LoadJobOut, code=202, body=LoadIn, errors=LATER
    )
    def post(self, request: Request, name: str) -> Response:
        node = findable("node", self.valid(LoadIn)["node"])
        job = acting.load(findable("name", name), node=node, by=self.actor, now=timezone.now())
        return Response(job_json(job), status=202)


class UnloadView(OperatorView):
    needs = {"POST": OPERATE}

    @operator_schema(
        "unloadModel", "Unload replicas: all, or those named", UnloadedOut, code=202, body=UnloadIn
    )
    def post(self, request: Request, name: str) -> Response:
        asked = self.valid(UnloadIn)
        where = acting.node_called(asked["node"]).pk if asked["node"] else None
        count = acting.unload(
            findable("name", name),
            by=self.actor,
            now=timezone.now(),
            node=where,
            index=asked.get("replica_index"),
            force=asked["force"],
        )
        return Response({"message": "model is being unloaded", "count": count}, status=202)


class MoveView(OperatorView):
    needs = {"POST": OPERATE}

    @operator_schema(
        "moveModel",
        "Load it on another node, then unload it here",
        LoadJobOut,
        code=202,
        body=MoveIn,
        errors=LATER,
    )
    def post(self, request: Request, name: str) -> Response:
        asked = self.valid(MoveIn)
        replica = _replica(findable("name", name), asked)
        job = acting.move(replica, to=asked["to"], by=self.actor, now=timezone.now())
        return Response(job_json(job), status=202)


class WhyView(OperatorView):
    needs = {"GET": "scheduling.view_placementdecision"}

    @operator_schema("whyModel", "Why a model has the replicas it has", WhyOut)
    def get(self, request: Request, name: str) -> Response:
        return Response(asking.why(findable("name", name), now=timezone.now()).as_json())


class UnloadFromNodeView(OperatorView):
    needs = {"POST": OPERATE}

    @operator_schema("unloadFromNode", "LocalAI's way to unload", MessageOut, body=ModelNameIn)
    def post(self, request: Request, node_id: str) -> Response:
        """200 when its processes are gone; 202 when that takes longer: it goes on without you."""
        return _stop_on(self, node_id, done="model unloaded")


class DeleteFromNodeView(OperatorView):
    needs = {"POST": OPERATE}

    @operator_schema(
        "deleteFromNode", "LocalAI's way to delete: it unloads", MessageOut, body=ModelNameIn
    )
    def post(self, request: Request, node_id: str) -> Response:
        """As LocalAI does it: files stay on the node's disk. 202 as for unloading."""
        return _stop_on(self, node_id, done="model deleted from node")


def _stop_on(view: OperatorView, node_id: str, *, done: str) -> Response:
    name = findable("model_name", view.valid(ModelNameIn)["model_name"])
    node, now = view.node(node_id), timezone.now()
    stopping.stop_all(name, by=view.actor, now=now, node=node.pk, force=True)
    if stopping.gone(name, node=node.pk, within=settings.CLUSTER.answer_within):
        return Response({"message": done})
    return Response({"message": "model is being unloaded"}, status=202)


def _replica(name: str, asked: dict[str, Any]) -> NodeModel:
    node = acting.node_called(asked["node"])
    rows = NodeModel.objects.filter(model_name=name, node=node).select_related("node")
    if asked.get("replica_index") is not None:
        rows = rows.filter(replica_index=asked["replica_index"])
    found = rows.order_by("replica_index").first()
    if found is None:
        raise NotFound(f"{name} is not on {node.name}.")
    return found
