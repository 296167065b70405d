"""What was loaded and decided is kept for as long as the operator wants, and never goes in silence.

Whatever its age, a row stays as long as something that is there refers to it, and of each model the
last ones stay, with the last failure and the last answer to "why is it nowhere?".
"""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from nodes.services import events
from scheduling.models import LoadJob, PlacementDecision
from scheduling.states import ACTIVE, JobState

AT_ONCE = 500  # of each, in one transaction: nobody waits for a backlog
ROUNDS = 20  # of one tick; the next one goes on

# What it brings up, brought up, holds or moves away is still there
IN_USE = (
    Q(state__in=ACTIVE)
    | Q(replica__isnull=False)
    | Q(replaces__isnull=False)
    | Q(reservation_ended_at=None)
)


def prune(*, now: datetime) -> int:
    """Forget loads and decisions that were over long ago; how many."""
    gone = 0
    for _ in range(ROUNDS):
        some = _prune_some(now=now)
        gone += sum(some)
        if max(some) < AT_ONCE:
            break
    return gone


@transaction.atomic
def _prune_some(*, now: datetime) -> tuple[int, int]:
    limit = now - settings.CLUSTER.keep_loads_for
    decisions = _delete(_decisions(limit))  # first: a load stays as long as one tells of it
    loads = _delete(_loads(limit))
    if decisions or loads:
        events.record(
            "history.pruned",
            actor=events.SYSTEM,
            now=now,
            subject="loads",
            reason=f"Older than {limit:%Y-%m-%d} (CLUSTER_KEEP_LOADS_FOR).",
            after={"loads": loads, "decisions": decisions},
        )
    return decisions, loads


def _decisions(limit: datetime) -> QuerySet[Any]:
    in_use = LoadJob.objects.filter(IN_USE, pk=OuterRef("job"))
    old = PlacementDecision.objects.filter(~Exists(in_use), at__lt=limit)
    rows = PlacementDecision.objects.all()
    return _but_for_the_last(old, rows, worth_keeping=Q(node=None)).order_by("at")


def _loads(limit: datetime) -> QuerySet[Any]:
    told = PlacementDecision.objects.filter(job=OuterRef("pk"))
    # Whose process was given up for dead lately: it may be found again, and strays.py asks by whom
    # it was made
    lately = Q(died_at__isnull=False, died_at__gte=limit)
    old = LoadJob.objects.filter(~Exists(told), ~IN_USE, ~lately, finished_at__lt=limit)
    rows = LoadJob.objects.all()
    failure = Q(state=JobState.FAILED)
    return _but_for_the_last(old, rows, worth_keeping=failure).order_by("finished_at")


def _but_for_the_last(
    old: QuerySet[Any], rows: QuerySet[Any], *, worth_keeping: Q
) -> QuerySet[Any]:
    """Without the last so many of each model, and without the last that is `worth_keeping`."""
    keep = settings.CLUSTER.keep_loads_per_model
    of_model = rows.filter(model_name=OuterRef("model_name"))
    newest = of_model.order_by("-id").values("id")
    oldest_kept = Subquery(newest[keep - 1 : keep])  # none: there are fewer, and all of them stay
    later = of_model.filter(worth_keeping, id__gt=OuterRef("id"))
    return old.filter(~worth_keeping | Exists(later), id__lt=oldest_kept)


def _delete(rows: QuerySet[Any]) -> int:
    """The first of those that nobody is just changing."""
    held = rows.select_for_update(of=("self",), skip_locked=True)
    ids = list(held.values_list("pk", flat=True)[:AT_ONCE])
    if ids:
        rows.model._default_manager.filter(pk__in=ids).delete()
    return len(ids)
