"""Questions over HTTP: what would happen if, and why is it so. Nothing is touched."""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.errors import InvalidInput
from nodes.api.base import OperatorView, findable, operator_schema
from scheduling.api.planning_shapes import PlanIn, PlanOut, WhyOut, changes_of, plan_json
from scheduling.services import asking

READ = "scheduling.view_modelschedulingconfig"


class PlanView(OperatorView):
    """POST scheduling/plan"""

    needs = {"POST": READ}

    @operator_schema(
        "scheduling_plan", "What one tick would decide if the cluster were so", PlanOut, body=PlanIn
    )
    def post(self, request: Request) -> Response:
        body = self.valid(PlanIn)
        return Response(plan_json(asking.what_if(changes_of(body), now=timezone.now())))


class WhyView(OperatorView):
    """GET scheduling/why?model=name"""

    needs = {"GET": READ}

    @operator_schema("scheduling_why", "Why a model has the replicas it has", WhyOut)
    def get(self, request: Request) -> Response:
        name: Any = request.query_params.get("model")
        if not name:
            raise InvalidInput("Say which model: ?model=name.")
        return Response(asking.why(findable("model", name), now=timezone.now()).as_json())
