"""Remembers whom we turned away, without letting a flood of them fill the memory."""

from datetime import datetime, timedelta

from django.db import connection, transaction

from nodes import statements
from nodes.models import BackendNode, ClusterEvent, FailedAttempt
from nodes.services import events
from nodes.states import Severity

WINDOW = timedelta(minutes=1)
KEPT = timedelta(hours=1)


def count(source: str, *, now: datetime) -> int:
    """Count one refusal of `source` and tell how many this minute has seen, over all processes."""
    length = FailedAttempt._meta.get_field("source").max_length
    with connection.cursor() as cursor:
        cursor.execute(
            statements.COUNT_REFUSAL,
            {"source": source[:length], "now": now, "window_began_after": now - WINDOW},
        )
        return int(cursor.fetchone()[0])


@transaction.atomic
def note(
    kind: str,
    *,
    who: str,
    actor: str,
    reason: str,
    now: datetime,
    node: BackendNode | None = None,
    subject: str = "",
) -> None:
    """Raise an attention event for a refusal, unless one about the same still waits for somebody.

    At most one look a minute: a worker that beats on for days is one line to acknowledge.

    Call it outside the transaction that was refused: that one is rolled back, this must stay.
    """
    about = (subject or who)[:255]
    if count(f"{kind}:{who}", now=now) == 1 and not _waiting(kind, about):
        events.record(
            kind,
            actor=actor,
            now=now,
            node=node,
            subject=about,
            reason=reason,
            severity=Severity.ATTENTION,
        )


def _waiting(kind: str, subject: str) -> bool:
    """Served by the index event_unacknowledged."""
    open_ones = ClusterEvent.objects.filter(severity=Severity.ATTENTION, acknowledged_at=None)
    return open_ones.filter(kind=kind, subject=subject).exists()


def forget_old(*, now: datetime) -> int:
    """Drop counters nobody will look at again; the tidy tick calls it."""
    rows, _ = FailedAttempt.objects.filter(window_started_at__lt=now - KEPT).delete()
    return rows
