"""Remembers whom we turned away, without letting a flood of them fill the memory."""

from datetime import datetime, timedelta

from django.db import connection, transaction

from nodes import statements
from nodes.models import BackendNode, FailedAttempt
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
    """Raise an attention event for the first refusal of `who` in a minute; count the others.

    Call it outside the transaction that was refused: that one is rolled back, this must stay.
    """
    if count(f"{kind}:{who}", now=now) == 1:
        events.record(
            kind,
            actor=actor,
            now=now,
            node=node,
            subject=subject or who,
            reason=reason,
            severity=Severity.ATTENTION,
        )


def forget_old(*, now: datetime) -> int:
    """Drop counters nobody will look at again; the sweep calls it."""
    rows, _ = FailedAttempt.objects.filter(window_started_at__lt=now - KEPT).delete()
    return rows
