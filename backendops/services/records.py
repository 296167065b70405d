"""The record of operations: found by what people remember of them, paged without counting."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from backendops.models import Operation, OperationShare
from backendops.querysets import OperationQuerySet
from backendops.states import OperationState, Verb
from clustermgr.lib.errors import Conflict, InvalidInput
from clustermgr.lib.text import uuid_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
AT_ONCE = 1000  # rows of an export


class RecordIsKept(Conflict):
    """Nobody clears the record by hand."""

    code = "record_is_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which operations; what is empty does not matter."""

    node: str = ""  # name or id
    actor: str = ""
    backend: str = ""
    verb: Verb | None = None
    states: Sequence[OperationState] = ()
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""  # somewhere in the backend, target, reason or author


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The last row of a page; the next page begins after it, whatever was added meanwhile."""

    at: datetime
    id: UUID

    @classmethod
    def read(cls, text: str) -> Self:
        moment, _, key = text.partition(".")
        try:
            return cls(at=EPOCH + int(moment[:20]) * MICROSECOND, id=UUID(key))
        except (ValueError, OverflowError) as error:
            raise InvalidInput("cursor must be one that this API gave out.") from error

    def __str__(self) -> str:
        return f"{(self.at - EPOCH) // MICROSECOND}.{self.id}"


def find(rows: OperationQuerySet, wanted: Wanted) -> OperationQuerySet:
    """Those of `rows` that fit, newest first."""
    exact = {"requested_by": wanted.actor, "backend": wanted.backend, "verb": wanted.verb}
    rows = rows.filter(**{column: value for column, value in exact.items() if value})
    if wanted.states:
        rows = rows.in_states(wanted.states)
    if wanted.node:
        rows = rows.filter(_on_node(wanted.node))
    if wanted.since:
        rows = rows.filter(requested_at__gte=wanted.since)
    if wanted.until:
        rows = rows.filter(requested_at__lt=wanted.until)
    if wanted.text:
        rows = rows.filter(_mentions(wanted.text))
    return rows.order_by("-requested_at", "-id")


def page(
    rows: OperationQuerySet, *, after: Cursor | None, limit: int
) -> tuple[list[Operation], Cursor | None]:
    """One page and where the next begins; None: there is none. Nothing is counted."""
    if after is not None:
        older = Q(requested_at__lt=after.at) | Q(id__lt=after.id)
        rows = rows.filter(older, requested_at__lte=after.at)
    found = list(rows[: limit + 1])
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], Cursor(at=last.requested_at, id=last.pk)


def shares(rows: OperationQuerySet, *, after: OperationShare | None = None) -> list[OperationShare]:
    """The next thousand nodes' shares of these, newest operation first; one query."""
    found = OperationShare.objects.filter(operation__in=rows.order_by().values("pk"))
    if after is not None:
        at, key = after.operation.requested_at, after.operation_id
        older = Q(operation__requested_at__lt=at) | Q(operation_id__lt=key)
        rest = Q(operation_id=key, id__gt=after.pk)
        found = found.filter(older | rest, operation__requested_at__lte=at)
    ordered = found.order_by("-operation__requested_at", "-operation_id", "id")
    return list(ordered.select_related("operation", "op__node")[:AT_ONCE])


def _on_node(node: str) -> Q:
    there = Q(op__node__name=node)
    if key := uuid_in(node):
        there |= Q(op__node_id=key)
    return Q(Exists(OperationShare.objects.filter(there, operation=OuterRef("pk"))))


def _mentions(text: str) -> Q:
    return (
        Q(backend__icontains=text)
        | Q(target__icontains=text)
        | Q(reason__icontains=text)
        | Q(requested_by__icontains=text)
    )
