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
from scheduling.services.leasing import Terms

REMEMBERED = timedelta(seconds=1)  # so late a rule's edit or a label's reaches running requests
MOST = 10_000  # models; beyond it everything is forgotten, and looked up again


@dataclass(frozen=True, slots=True)
class _Known:
    terms: Terms
    until: datetime


class TermsBook:
    """One per process."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def of(self, model: str, *, now: datetime, look: Callable[[str], Terms]) -> Terms:
        known = self._known.get(model)
        if known is not None and known.until > now:
            return known.terms
        terms = look(model)
        with self._lock:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[model] = _Known(terms, now + REMEMBERED)
        return terms


def look_up(model: str) -> Terms:
    """Two statements, or one for a model whose rule has no selector."""
    rule = ModelSchedulingConfig.objects.filter(model_name=model).first()
    if rule is None:
        return Terms()
    return Terms(barred=_barred(rule) if rule.selector else ())


def _barred(rule: ModelSchedulingConfig) -> tuple[UUID, ...]:
    meant = BackendNode.objects.all().matching(Selector.parse(rule.selector))
    having = BackendNode.objects.filter(
        replicas__model_name=rule.model_name, replicas__state=ReplicaState.LOADED
    )
    others = having.exclude(pk__in=meant.values("pk")).distinct()
    return tuple(others.values_list("pk", flat=True))
