"""Leases: a request's claim on a replica. Claimed, released and counted in one statement each.

`NodeModel.in_flight` is the number of its leases at every moment: both change in the same
transaction, and whoever forgets to release is forgotten. Nothing here waits for the disk: a
crash of PostgreSQL loses the last half second of leases and of counts, together.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction
from psycopg.errors import UniqueViolation

from clustermgr.lib import fastlane
from clustermgr.lib.errors import NotFound
from nodes.services import events
from scheduling import statements
from scheduling.models import RouteLease
from scheduling.routing.asks import Ask, How, Lease

log = logging.getLogger(__name__)

SWEPT_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every pick of one model, this moment."""

    barred: tuple[UUID, ...] = ()  # nodes that have it and that its rule does not mean
    busier: int = 2  # a fitting replica may have this many requests more than the least busy
    times_busier: float = 1.5
    cold: tuple[UUID, ...] = ()  # replicas with something in their cache, the least first


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An ask, and the replica that its prompt is known to."""

    ask: Ask
    hot: UUID | None = None
    by_prefix: bool = False  # else `hot` is only to be told of
    id: UUID = field(default_factory=uuid4)

    @property
    def kind(self) -> How:
        if self.ask.session:
            return How.SESSION
        return How.PREFIX if self.by_prefix else How.PLAIN


def take(wanted: Sequence[Wanted], terms: Terms, *, now: datetime) -> list[Lease | None]:
    """A lease for each, fairly; None where no replica can serve. All of one `Ask.group`."""
    try:
        return _take(wanted, terms, now=now)
    except UniqueViolation:
        # The connection broke between commit and answer, and the statement was sent again. What
        # the first one granted nobody knows of: it expires.
        return _take([replace(one, id=uuid4()) for one in wanted], terms, now=now)


def _take(wanted: Sequence[Wanted], terms: Terms, *, now: datetime) -> list[Lease | None]:
    model, revision, excluded = wanted[0].ask.group
    rows = fastlane.fetch(
        statements.TAKE,
        {
            "model": model,
            "leases": _array(one.id for one in wanted),
            "holders": [one.ask.holder for one in wanted],
            "untils": _array(now + one.ask.ttl for one in wanted),
            "kinds": _array(one.kind.value for one in wanted),
            "hots": _array(one.hot or "NULL" for one in wanted),
            "sessions": [one.ask.session for one in wanted],
            "cold": _array(terms.cold),
            "busier": terms.busier,
            "times_busier": terms.times_busier,
            "barred": list(terms.barred) or None,
            "revision": revision or None,
            "excluded": list(excluded) or None,
            "now": now,
        },
    )
    granted = {row[0]: row for row in rows}
    return [_lease(one, granted.get(one.id), now=now) for one in wanted]


def release(leases: Sequence[UUID]) -> set[UUID]:
    """End these leases; which of them were live. Ending one twice changes nothing."""
    rows = fastlane.fetch(statements.RELEASE, {"leases": _array(leases), "expired_by": None})
    return {row[0] for row in rows}


def renew(leases: Sequence[UUID], *, until: datetime) -> dict[UUID, datetime]:
    """Make leases last until then at least; those that are gone are missing in the answer."""
    rows = fastlane.fetch(statements.RENEW_LEASES, {"leases": list(leases), "until": until})
    return {lease: expires_at for lease, expires_at in rows}


@transaction.atomic
def end(lease_id: UUID, *, by: str, now: datetime) -> RouteLease:
    """End somebody else's lease by hand. The holder is not told: its request, if any, runs on."""
    rows = RouteLease.objects.filter(pk=lease_id).select_related("replica__node")
    lease = rows.first()
    if lease is None or lease_id not in release([lease_id]):
        raise NotFound("There is no such lease; it was released, or has expired.")
    replica = lease.replica
    events.record(
        "lease.ended",
        actor=by,
        now=now,
        node=replica.node,
        subject=replica.model_name,
        reason=f"{lease.holder} held {replica.process_key} on {replica.node.name} since"
        f" {lease.granted_at:%Y-%m-%d %H:%M:%S} UTC.",
    )
    return lease


def sweep(*, now: datetime) -> int:
    """End the leases of callers that never came back; how many."""
    ended = 0
    while ids := _expired(now):
        ended += len(fastlane.fetch(statements.RELEASE, {"leases": ids, "expired_by": now}))
        if len(ids) < SWEPT_AT_ONCE:
            break
    if ended:
        log.info("leases expired", extra={"count": ended})
    return ended


@transaction.atomic
def recount() -> int:
    """Make every count be the number of leases; normally none differs, and it is one look."""
    with connection.cursor() as cursor:
        cursor.execute(statements.MISCOUNTED)
        wrong = [row[0] for row in cursor.fetchall()]
        if not wrong:
            return 0
        # A second look under the lock: between two releases the first one saw nothing wrong
        cursor.execute(statements.HOLD_REPLICAS, {"ids": wrong})
        cursor.execute(statements.RECOUNT, {"ids": wrong})
        mended: int = cursor.rowcount
    if mended:
        log.error("requests were miscounted", extra={"replicas": mended})
    return mended


def _array(values: Iterable[object]) -> str:
    """As PostgreSQL writes one, of what needs no quotes: psycopg looks at each element twice."""
    return f"{{{','.join(map(str, values))}}}"


def _expired(now: datetime) -> list[UUID]:
    rows = RouteLease.objects.filter(expires_at__lte=now).order_by("expires_at")
    return list(rows.values_list("pk", flat=True)[:SWEPT_AT_ONCE])


def _lease(wanted: Wanted, row: Sequence[Any] | None, *, now: datetime) -> Lease | None:
    if row is None:
        return None
    _, replica, node, name, address, index, revision, how, load, least, count, missed, hot = row
    return Lease(
        id=wanted.id,
        model=wanted.ask.model,
        replica=replica,
        node=node,
        node_name=name,
        address=address,
        replica_index=index,
        revision=revision,
        expires_at=now + wanted.ask.ttl,
        how=How(how),
        load=load,
        least=least,
        candidates=count,
        missed=missed,
        hot_load=hot,
    )
