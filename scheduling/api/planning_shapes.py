"""The bodies of questions and their answers."""

from typing import Any

from rest_framework import serializers

from clustermgr.lib.errors import InvalidInput
from nodes.fields import UINT64_MAX
from nodes.labelling import shown
from scheduling.definitions import nearest
from scheduling.planning.changes import Changes
from scheduling.planning.plans import Plan
from scheduling.planning.views import ModelView, RuleView
from scheduling.rules import MOST_REPLICAS
from scheduling.states import Strategy

MANY = 1000
RULE_FIELDS = ("selector", "min_replicas", "max_replicas", "spread_all", "pinned", "priority")
LARGEST = 2**31 - 1


class Strict(serializers.Serializer):
    """A slip of the finger would suppose nothing, and the answer be a false all-clear."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = [key for key in data if key not in self.fields] if isinstance(data, dict) else []
        if unknown:
            slip = str(unknown[0])
            raise InvalidInput(f"A plan knows no {shown(slip)}{nearest(slip, self.fields)}")
        return super().to_internal_value(data)


class RuleIn(Strict):
    """Fields of a rule; what is left out stays as it is."""

    selector = serializers.CharField(required=False, allow_blank=True, max_length=4096)
    min_replicas = serializers.IntegerField(required=False, min_value=0, max_value=MOST_REPLICAS)
    max_replicas = serializers.IntegerField(required=False, min_value=0, max_value=MOST_REPLICAS)
    spread_all = serializers.BooleanField(required=False)
    pinned = serializers.BooleanField(required=False)
    priority = serializers.IntegerField(required=False, min_value=-LARGEST, max_value=LARGEST)
    strategy = serializers.ChoiceField(choices=Strategy.choices, required=False)


class NewModelIn(RuleIn):
    """A model that does not exist yet, and its rule."""

    name = serializers.CharField(max_length=255)
    backend = serializers.CharField(required=False, allow_blank=True, max_length=255)
    vram_bytes = serializers.IntegerField(required=False, min_value=0, max_value=UINT64_MAX)
    size_bytes = serializers.IntegerField(required=False, min_value=0, max_value=UINT64_MAX)
    concurrency_group = serializers.CharField(required=False, allow_blank=True, max_length=255)


class PlanIn(Strict):
    """What is supposed; nodes by name."""

    drain = serializers.ListField(child=serializers.CharField(), required=False, max_length=MANY)
    cordon = serializers.ListField(child=serializers.CharField(), required=False, max_length=MANY)
    uncordon = serializers.ListField(child=serializers.CharField(), required=False, max_length=MANY)
    remove = serializers.ListField(child=serializers.CharField(), required=False, max_length=MANY)
    rules = serializers.DictField(child=RuleIn(), required=False)
    models = NewModelIn(many=True, required=False)


class VerdictOut(serializers.Serializer):
    node = serializers.UUIDField()
    name = serializers.CharField()
    fits = serializers.BooleanField()
    why = serializers.CharField()
    score = serializers.ListField(child=serializers.FloatField())


class PlacedOut(serializers.Serializer):
    model = serializers.CharField()
    node = serializers.CharField()
    replica_index = serializers.IntegerField()
    cause = serializers.CharField()
    summary = serializers.CharField()


class StarvedOut(serializers.Serializer):
    model = serializers.CharField()
    missing = serializers.IntegerField()
    reason = serializers.CharField()
    smallest_fix = serializers.CharField()
    verdicts = VerdictOut(many=True)


class WaitingOut(serializers.Serializer):
    model = serializers.CharField()
    reason = serializers.CharField()


class CancelledOut(serializers.Serializer):
    job = serializers.IntegerField()
    model = serializers.CharField()
    reason = serializers.CharField()


class PlanOut(serializers.Serializer):
    place = PlacedOut(many=True)
    unload = PlacedOut(many=True)
    retire = PlacedOut(many=True, help_text="No new requests from then on; stopped when idle.")
    cancel = CancelledOut(many=True, help_text="Loads that are given up.")
    starved = StarvedOut(many=True)
    waiting = WaitingOut(many=True)


class WhyOut(serializers.Serializer):
    model = serializers.CharField()
    desired = serializers.IntegerField()
    serving = serializers.IntegerField()
    loading = serializers.IntegerField()
    satisfied = serializers.BooleanField()
    reason = serializers.CharField()
    smallest_fix = serializers.CharField(allow_blank=True)
    verdicts = VerdictOut(many=True)


def changes_of(body: dict[str, Any]) -> Changes:
    """The question behind a body that is well formed."""
    rules = {name: dict(fields) for name, fields in body.get("rules", {}).items()}
    return Changes(
        drain=tuple(body.get("drain", ())),
        cordon=tuple(body.get("cordon", ())),
        uncordon=tuple(body.get("uncordon", ())),
        remove=tuple(body.get("remove", ())),
        rules=rules,
        models=tuple(map(_model, body.get("models", ()))),
    )


def plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "place": [_moved(one, one.node_name, one.summary) for one in plan.place],
        "unload": [_moved(one, one.node_name, one.reason) for one in plan.unload],
        "retire": [_moved(one, one.node_name, one.reason) for one in plan.retire],
        "cancel": [
            {"job": one.job, "model": one.model, "reason": one.reason} for one in plan.cancel
        ],
        "starved": [
            {
                "model": one.model,
                "missing": one.missing,
                "reason": one.reason,
                "smallest_fix": one.smallest_fix,
                "verdicts": [verdict.as_json() for verdict in one.verdicts],
            }
            for one in plan.starved
        ],
        "waiting": [{"model": one.model, "reason": one.reason} for one in plan.held],
    }


def _moved(one: Any, node: str, summary: str) -> dict[str, Any]:
    return {
        "model": one.model,
        "node": node,
        "replica_index": one.index,
        "cause": one.cause,
        "summary": summary,
    }


def _model(fields: dict[str, Any]) -> ModelView:
    rule = {name: fields[name] for name in (*RULE_FIELDS, "strategy") if name in fields}
    return ModelView(
        name=fields["name"],
        revision="supposed",
        backend=fields.get("backend", ""),
        vram_bytes=fields.get("vram_bytes"),
        size_bytes=fields.get("size_bytes"),
        group=fields.get("concurrency_group", ""),
        rule=RuleView(**rule),
    )
