"""Models whose processes come up and die: once is bad luck, more often is the model's fault."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, F
from django.db.models.functions import Collate

from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce, events, replicas
from nodes.states import Severity
from scheduling import backoff
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.states import JobState

LATELY = timedelta(minutes=10)
FORGIVEN = 2  # of those that came up in that time; they are replaced at once


@transaction.atomic
def bury(rows: NodeModelQuerySet, *, reason: str, now: datetime) -> list[NodeModel]:
    """Forget replicas whose processes are gone; their loads remember that they died."""
    LoadJob.objects.filter(replica__in=rows, state=JobState.LOADED).update(died_at=now)
    return replicas.write_off(rows, reason=reason, now=now)


@transaction.atomic
def settle(lost: Sequence[NodeModel], *, now: datetime) -> None:
    """Have what died replaced: at once, or after a pause where that goes on and on.

    Call it after the replicas are gone: a model is locked before its replicas.
    """
    names = sorted({row.model_name for row in lost})
    # By Python's order, as an import locks them
    models = ModelLoadInfo.objects.filter(pk__in=names).order_by(Collate("model_name", "C"))
    deaths = _deaths(names, now=now)
    for model in models.select_for_update(no_key=True):
        count = deaths.get((model.model_name, model.config_revision), 0)
        if count > FORGIVEN:
            _pause(model, count, now=now)
    announce.service_lost()


def _deaths(names: Sequence[str], *, now: datetime) -> dict[tuple[str, str], int]:
    """How many came up lately and died, by model and revision."""
    came = LoadJob.objects.filter(state=JobState.LOADED, finished_at__gt=now - LATELY)
    gone = came.filter(model_name__in=names, died_at__isnull=False).order_by()
    rows = gone.values_list("model_name", "config_revision").annotate(n=Count("pk"))
    return {(name, revision): count for name, revision, count in rows}


def _pause(model: ModelLoadInfo, count: int, *, now: datetime) -> None:
    minutes = LATELY.total_seconds() / 60
    why = f"{count} processes of it came up and died in the last {minutes:g} minutes."
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
