"""The record is kept for as long as the operator wants, and never shortened in silence."""

from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from backendops.models import Operation, OperationShare, PendingBackendOp
from backendops.states import OUTSTANDING, OpState
from nodes.services import events

AT_ONCE = 1000  # operations in one go: the next tick takes the next


@transaction.atomic
def prune(*, now: datetime) -> int:
    """Forget operations that ended long ago; dead letters and what is not dismissed stay."""
    limit = now - settings.CLUSTER.keep_history_for
    old = Operation.objects.over().filter(requested_at__lt=limit).exclude(_still_matters())
    doomed = list(old.order_by("requested_at").values_list("pk", flat=True)[:AT_ONCE])
    if not doomed:
        return 0
    Operation.objects.filter(pk__in=doomed).delete()
    unasked = ~Exists(OperationShare.objects.filter(op=OuterRef("pk")))
    ended = PendingBackendOp.objects.exclude(state__in=[*OUTSTANDING, OpState.DEAD])
    ended.filter(unasked, finished_at__lt=limit).delete()
    events.record(
        "history.pruned",
        actor=events.SYSTEM,
        now=now,
        subject="operations",
        reason=f"Older than {limit:%Y-%m-%d} (CLUSTER_KEEP_HISTORY_FOR).",
        after={"operations": len(doomed)},
    )
    return len(doomed)


def _still_matters() -> Exists:
    open_ones = OperationShare.objects.filter(op__state__in=[*OUTSTANDING, OpState.DEAD])
    return Exists(open_ones.filter(operation=OuterRef("pk")))
