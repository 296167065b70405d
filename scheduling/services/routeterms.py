"""What holds for picks of a model, remembered for a second: its rule and where it may serve."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from nodes.models import BackendNode
from nodes.selectors import Selector
from nodes.states import ReplicaState
from scheduling.models import ModelSchedulingConfig
from scheduling.prefixes.policies import Policy
from scheduling.services.prefixing import Prefixes

REMEMBERED = timedelta(seconds=1)  # so late a rule's edit or a label's reaches running requests
MOST = 10_000  # models; beyond it everything is forgotten, and looked up again


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How requests for a model are routed, and nodes that have it and must not serve it."""

    policy: Policy
    barred: tuple[UUID, ...] = ()


class Standings:
    """One per process."""

    def __init__(self, look: Callable[[str], Standing]) -> None:
        self._look = look
        self._known: dict[str, tuple[Standing, datetime]] = {}
        self._lock = threading.Lock()

    def of(self, model: str, *, now: datetime) -> Standing:
        known = self._known.get(model)
        if known is not None and known[1] > now:
            return known[0]
        standing = self._look(model)
        with self._lock:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[model] = standing, now + REMEMBERED
        return standing


def look_up(model: str, *, prefixes: Prefixes) -> Standing:
    """Two statements, or one for a model whose rule has no selector."""
    rule = _rule(model)
    if rule is None:
        return Standing(policy=prefixes.policy_for())
    policy = prefixes.policy_for(
        route_policy=rule.route_policy,
        balance_abs_threshold=rule.balance_abs_threshold,
        balance_rel_threshold=rule.balance_rel_threshold,
        min_prefix_match=rule.min_prefix_match,
    )
    return Standing(policy=policy, barred=_barred(rule))


def barred(model: str) -> tuple[UUID, ...]:
    """Nodes that have it and that its rule does not mean."""
    rule = _rule(model)
    return _barred(rule) if rule else ()


def _rule(model: str) -> ModelSchedulingConfig | None:
    return ModelSchedulingConfig.objects.filter(model_name=model).first()


def _barred(rule: ModelSchedulingConfig) -> tuple[UUID, ...]:
    if not rule.selector:
        return ()
    meant = BackendNode.objects.all().matching(Selector.parse(rule.selector))
    having = BackendNode.objects.filter(
        replicas__model_name=rule.model_name, replicas__state=ReplicaState.LOADED
    )
    others = having.exclude(pk__in=meant.values("pk")).distinct()
    return tuple(others.values_list("pk", flat=True))
