"""Models whose processes come up and die: once is bad luck, more often is the model's fault."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, F

from nodes.models import NodeModel
from nodes.services import announce, events
from nodes.states import Severity
from scheduling import backoff
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.states import JobState

LATELY = timedelta(minutes=10)
FORGIVEN = 1  # in that time; it is replaced at once


@transaction.atomic
def settle(lost: Sequence[NodeModel], *, now: datetime) -> None:
    """Have what died replaced: at once, or after a pause where that goes on and on.

    Call it after the replicas are gone: a model is locked before its replicas.
    """
    names = sorted({row.model_name for row in lost})
    models = ModelLoadInfo.objects.filter(pk__in=names).order_by("pk")
    deaths = _deaths(names, now=now)
    for model in models.select_for_update(no_key=True):
        count = deaths.get((model.model_name, model.config_revision), 0)
        if count > FORGIVEN:
            _pause(model, count, now=now)
    announce.service_lost()


def _deaths(names: Sequence[str], *, now: datetime) -> dict[tuple[str, str], int]:
    """How many came up lately and are gone, by model and revision: loads remember it."""
    came = LoadJob.objects.filter(state=JobState.LOADED, finished_at__gt=now - LATELY)
    gone = came.filter(model_name__in=names, replica=None, replaces=None).order_by()
    rows = gone.values_list("model_name", "config_revision").annotate(n=Count("pk"))
    return {(name, revision): count for name, revision, count in rows}


def _pause(model: ModelLoadInfo, count: int, *, now: datetime) -> None:
    minutes = LATELY.total_seconds() / 60
    why = f"Its process died; it was loaded {count} times in the last {minutes:g} minutes."
    until = now + backoff.delay(count - FORGIVEN, first=backoff.LOAD)
    ModelLoadInfo.objects.filter(pk=model.pk).update(
        failures=F("failures") + 1, retry_at=until, last_error=why
    )
    events.record(
        "model.crashes",
        actor=events.SYSTEM,
        now=now,
        subject=model.model_name,
        reason=why,
        after={"next_try": until},
        severity=Severity.ATTENTION,
    )
