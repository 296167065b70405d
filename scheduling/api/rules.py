"""LocalAI's scheduling endpoints: its shapes, its statuses, and what it never tells."""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from nodes.api.base import IF_MATCH, OperatorView, operator_schema
from scheduling import rules
from scheduling.api.serializers import SchedulingRuleIn, SchedulingRuleOut
from scheduling.api.shapes import rule_json
from scheduling.definitions import is_slip
from scheduling.models import ModelSchedulingConfig
from scheduling.services import policies, standing

EDIT = "scheduling.change_modelschedulingconfig"
VIEW = "scheduling.view_modelschedulingconfig"


class RulesView(OperatorView):
    needs = {"GET": VIEW, "POST": EDIT}

    @operator_schema(
        "listSchedulingRules", "Every rule, by its model's name", SchedulingRuleOut(many=True)
    )
    def get(self, request: Request) -> Response:
        names = ModelSchedulingConfig.objects.order_by("model_name")
        found = standing.of(names.values_list("model_name", flat=True))
        return Response([rule_json(one) for one in found])

    @operator_schema(
        "putSchedulingRule",
        "Create or replace a model's rule",
        SchedulingRuleOut,
        body=SchedulingRuleIn,
        parameters=[IF_MATCH],
    )
    def post(self, request: Request) -> Response:
        """Replaces selector, min, max and spread; routing fields and ours stay when left out."""
        rule = policies.put(
            _known(request.data),
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return _answer(rule)


class RuleView(OperatorView):
    needs = {"GET": VIEW, "DELETE": EDIT}

    @operator_schema("getSchedulingRule", "One model's rule", SchedulingRuleOut)
    def get(self, request: Request, model_name: str) -> Response:
        return _answer(policies.find(model_name))

    @operator_schema(
        "deleteSchedulingRule", "Let go of a model's rule", None, code=204, parameters=[IF_MATCH]
    )
    def delete(self, request: Request, model_name: str) -> Response:
        """Replicas stay until something else needs their place. No rule: nothing to do."""
        policies.delete(
            model_name,
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
        )
        return Response(status=204)


def _known(body: Any) -> Any:
    """What LocalAI would read of it: its clients send back answers, with ids and dates.

    But a slip of the finger stays in, to be refused: read as nothing it would undo a minimum.
    """
    if not isinstance(body, dict):
        return body
    answered = SchedulingRuleOut().fields.keys() - rules.KEYS
    passed = answered | {key for key in body if not is_slip(key, rules.KEYS)} - rules.KEYS
    return {key: value for key, value in body.items() if key not in passed}


def _answer(rule: ModelSchedulingConfig) -> Response:
    body = rule_json(standing.one(rule.model_name))
    return Response(body, headers={"ETag": f'"{rule.version}"'})
