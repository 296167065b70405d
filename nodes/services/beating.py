"""Heartbeats: many at once, in one statement, changing nothing but what was told.

A beat never changes liveness: the sweep decides, for all nodes together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from nodes import statements
from nodes.services import announce, capacity
from nodes.wire import HeartbeatReport

REPORTED = tuple(field.name for field in fields(HeartbeatReport))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One heartbeat as it came in."""

    node_id: UUID
    received_at: datetime
    report: HeartbeatReport


@transaction.atomic
def record(beats: Sequence[Beat]) -> None:
    """Store the beats; unknown and retired nodes are passed over, the edge refuses those."""
    if not beats:
        return
    with connection.cursor() as cursor:
        cursor.execute(statements.UNSYNCED)
        cursor.execute(statements.RECORD_BEATS, parameters(beats))
        news = cursor.fetchall()
    changed = [node_id for node_id, other, _ in news if other]
    if changed:
        capacity.follow_hardware(changed, now=max(beat.received_at for beat in beats))
    if any(roomier for *_, roomier in news):
        announce.room_came()


def parameters(beats: Iterable[Beat]) -> list[list[Any]]:
    """The columns of RECORD_BEATS, one row per node."""
    rows = merged(beats)
    return [
        [beat.node_id for beat in rows],
        [beat.received_at for beat in rows],
        *([getattr(beat.report, name) for beat in rows] for name in REPORTED),
    ]


def merged(beats: Iterable[Beat]) -> list[Beat]:
    """One beat per node: an UPDATE .. FROM that finds two would pick either."""
    latest: dict[UUID, Beat] = {}
    for beat in sorted(beats, key=lambda beat: beat.received_at):
        earlier = latest.get(beat.node_id)
        latest[beat.node_id] = beat if earlier is None else _over(earlier, beat)
    return list(latest.values())


def _over(earlier: Beat, later: Beat) -> Beat:
    told = {name: getattr(later.report, name) for name in REPORTED}
    news = {name: value for name, value in told.items() if value is not None}
    return replace(later, report=replace(earlier.report, **news))
