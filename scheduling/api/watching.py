"""What is under way, what was decided and what is free."""

from drf_spectacular.utils import OpenApiParameter
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from clustermgr.lib.api import Pages, paged_array
from clustermgr.lib.errors import NotFound
from nodes.api.base import PAGING, OperatorView, findable, one_of, operator_schema
from nodes.models import NodeModel
from scheduling.api.serializers import (
    CapacityOut,
    DecisionOut,
    LoadJobOut,
    LoadStatusOut,
    ModelReplicaOut,
)
from scheduling.api.shapes import (
    Json,
    capacity_json,
    decision_json,
    job_json,
    replica_json,
)
from scheduling.models import LoadJob, ModelLoadInfo, PlacementDecision
from scheduling.services import coldstart, counting
from scheduling.states import JobState

VIEW_JOBS = "scheduling.view_loadjob"
REQUEST = "scheduling.request_route"
LIVE = "active"


class ReplicasView(OperatorView):
    needs = {"GET": "nodes.view_nodemodel"}

    @operator_schema(
        "listModelReplicas", "Where a model is", ModelReplicaOut(many=True), parameters=PAGING
    )
    def get(self, request: Request, name: str) -> Response:
        name = findable("name", name)
        rows = NodeModel.objects.filter(model_name=name).select_related("node")
        return paged_array(request, rows.order_by("node__name", "replica_index"), _replicas)


class ModelJobsView(OperatorView):
    needs = {"GET": VIEW_JOBS}

    @operator_schema(
        "listModelJobs", "Loads of a model, newest first", LoadJobOut(many=True), parameters=PAGING
    )
    def get(self, request: Request, name: str) -> Response:
        rows = LoadJob.objects.filter(model_name=findable("name", name)).select_related("node")
        return paged_array(request, rows, _jobs, page_size=Pages.page_size)


class JobsView(OperatorView):
    needs = {"GET": VIEW_JOBS}

    @operator_schema(
        "listJobs",
        "Loads, newest first",
        LoadJobOut(many=True),
        parameters=[
            *PAGING,
            OpenApiParameter("state", str, enum=[LIVE, *JobState.values]),
            OpenApiParameter("model", str),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = LoadJob.objects.select_related("node").order_by("-id")
        state = request.query_params.get("state", "")
        if state == LIVE:
            rows = rows.active()
        elif state:
            rows = rows.filter(state=one_of("state", state, JobState))
        if model := findable("model", request.query_params.get("model", "")):
            rows = rows.filter(model_name=model)
        return paged_array(request, rows, _jobs, page_size=Pages.page_size)


class DecisionsView(OperatorView):
    needs = {"GET": "scheduling.view_placementdecision"}

    @operator_schema(
        "listModelDecisions",
        "What was decided about a model, newest first",
        DecisionOut(many=True),
        parameters=PAGING,
    )
    def get(self, request: Request, name: str) -> Response:
        rows = PlacementDecision.objects.filter(model_name=findable("name", name))
        shown = rows.select_related("node")
        return paged_array(request, shown, _decisions, page_size=Pages.page_size)


class MayWaitForIt(BasePermission):
    """Who sees loads, and who was told to come back when one is over."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user.has_perm(VIEW_JOBS) or request.user.has_perm(REQUEST)


class LoadStatusView(OperatorView):
    permission_classes = (IsAuthenticated, MayWaitForIt)

    @operator_schema("getLoadStatus", "How far a model's load is", LoadStatusOut)
    def get(self, request: Request, name: str) -> Response:
        """The most advanced load that is under way; 404 where there is none, as LocalAI says."""
        rows = LoadJob.objects.active().filter(model_name=findable("name", name))
        jobs = sorted(rows.select_related("node"), key=_advancement)
        if not jobs:
            raise NotFound(f"{name} is not being loaded.")
        return Response(coldstart.status(jobs[-1]))


class CapacityView(OperatorView):
    needs = {"GET": "nodes.view_backendnode"}

    @operator_schema(
        "getCapacity",
        "Slots and memory by the value of a label",
        CapacityOut(many=True),
        parameters=[OpenApiParameter("label", str, required=True)],
    )
    def get(self, request: Request) -> Response:
        found = counting.by_label(request.query_params.get("label", ""))
        return Response([capacity_json(one) for one in found])


def _advancement(job: LoadJob) -> tuple[int, float, int]:
    return JobState.values.index(job.state), job.percentage, -job.pk


def _replicas(rows: list[NodeModel]) -> list[Json]:
    ids = [row.pk for row in rows]
    serving = set(NodeModel.objects.all().serving().filter(pk__in=ids).values_list("pk", flat=True))
    names = {row.model_name for row in rows}
    current = dict(
        ModelLoadInfo.objects.filter(pk__in=names).values_list("model_name", "config_revision")
    )
    return [
        replica_json(row, revision=current.get(row.model_name, ""), serving=row.pk in serving)
        for row in rows
    ]


def _jobs(rows: list[LoadJob]) -> list[Json]:
    return [job_json(row) for row in rows]


def _decisions(rows: list[PlacementDecision]) -> list[Json]:
    return [decision_json(row) for row in rows]
