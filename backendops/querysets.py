"""Sets of rows worth a name. They never write and never read a clock."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Self
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.expressions import RawSQL

from backendops.states import ATTENTION, OUTSTANDING, WAITING, OperationState, OpState
from nodes.states import Liveness, NodeType

if TYPE_CHECKING:
    from backendops.models import NodeBackend, Operation, PendingBackendOp


def ready(path: str) -> Q:
    """The node at the end of `path` takes orders now: let in, alive, not being emptied."""
    conditions = {
        "node_type": NodeType.BACKEND,
        "retired_at": None,
        "approved_at__isnull": False,
        "drain_requested_at": None,
        "liveness": Liveness.HEALTHY,
    }
    return Q(**{f"{path}__{column}": value for column, value in conditions.items()})


READY = ready("node")


def any_of(ids: Iterable[UUID]) -> RawSQL:
    """For `__in`: one parameter, where a list sends one for each of a thousand nodes."""
    return RawSQL("SELECT unnest(%s::uuid[])", [list(ids)])


class OperationQuerySet(models.QuerySet["Operation"]):
    def having(self, *states: OpState) -> Self:
        """Those with an op in one of these states."""
        return self.filter(_share_in(*states))

    def live(self) -> Self:
        """Under way, or ended badly and not dismissed: what an operator must see."""
        return self.filter(_live())

    def over(self) -> Self:
        """The record: nothing is under way, and nothing waits to be dismissed."""
        return self.exclude(_live())

    def in_state(self, state: OperationState) -> Self:
        """Those whose computed state reads so; states.operation_state in SQL."""
        return self.filter(_STATE_IN_SQL[state]())

    def in_states(self, states: Iterable[OperationState]) -> Self:
        """Those in any of them."""
        return self.filter(reduce(or_, (_STATE_IN_SQL[state]() for state in states)))


def _live() -> Q:
    under_way = tuple(state for state in OUTSTANDING if state not in ATTENTION)
    return _share_in(*under_way) | (_share_in(*ATTENTION) & Q(acknowledged_at=None))


def _share_in(*states: OpState) -> Q:
    shares = apps.get_model("backendops", "OperationShare").objects
    return Q(Exists(shares.filter(operation=OuterRef("pk"), op__state__in=states)))


def _only(*states: OpState) -> Q:
    others = tuple(state for state in OpState if state not in states)
    return ~_share_in(*others)


def _idle() -> Q:
    return ~_share_in(OpState.RUNNING, OpState.QUEUED, OpState.CANCELLING, OpState.UNCONFIRMED)


def _purely_queued() -> Q:
    return _share_in(OpState.QUEUED) & _only(OpState.QUEUED, OpState.SUPERSEDED, OpState.CANCELLED)


def _whole() -> Q:
    return _share_in(OpState.SUCCEEDED) & _only(OpState.SUCCEEDED, OpState.SUPERSEDED)


_STATE_IN_SQL: dict[OperationState, Callable[[], Q]] = {
    OperationState.QUEUED: _purely_queued,
    OperationState.RUNNING: lambda: (
        _share_in(OpState.RUNNING) | (_share_in(OpState.QUEUED) & ~_purely_queued())
    ),
    OperationState.CANCELLING: lambda: (
        _share_in(OpState.CANCELLING) & ~_share_in(OpState.RUNNING, OpState.QUEUED)
    ),
    OperationState.UNCONFIRMED: lambda: (
        _share_in(OpState.UNCONFIRMED)
        & ~_share_in(OpState.RUNNING, OpState.QUEUED, OpState.CANCELLING)
    ),
    OperationState.SUCCEEDED: _whole,
    OperationState.PARTIAL: lambda: _idle() & _share_in(OpState.SUCCEEDED) & _share_in(*ATTENTION),
    OperationState.PARTLY_CANCELLED: lambda: (
        _share_in(OpState.SUCCEEDED)
        & _share_in(OpState.CANCELLED)
        & _only(OpState.SUCCEEDED, OpState.CANCELLED, OpState.SUPERSEDED)
    ),
    OperationState.FAILED: lambda: _idle() & _share_in(*ATTENTION) & ~_share_in(OpState.SUCCEEDED),
    OperationState.CANCELLED: lambda: (
        _idle() & ~_share_in(*ATTENTION) & ~_share_in(OpState.SUCCEEDED)
    ),
}


class PendingBackendOpQuerySet(models.QuerySet["PendingBackendOp"]):
    def outstanding(self) -> Self:
        return self.filter(state__in=OUTSTANDING)

    def waiting(self) -> Self:
        """For their node, their turn or their time."""
        return self.filter(state__in=WAITING)

    def pointless(self) -> Self:
        """Waiting ones whose node is being emptied or was sent away."""
        leaving = Q(node__drain_requested_at__isnull=False) | Q(node__retired_at__isnull=False)
        return self.waiting().filter(leaving)

    def abandoned(self, now: datetime) -> Self:
        """Running ones whose process has not renewed its lease."""
        return self.filter(state=OpState.RUNNING, lease_until__lt=now)

    def in_doubt(self, now: datetime) -> Self:
        """Ones that only the node's inventory can tell about: nobody waits for its answer."""
        unheld = Q(lease_until=None) | Q(lease_until__lt=now)
        return self.filter(unheld, state__in=[OpState.UNCONFIRMED, OpState.CANCELLING])

    def to_check(self, now: datetime) -> Self:
        """Those in doubt, when it is time to ask."""
        return self.in_doubt(now).filter(due_at__lte=now)

    def stuck(self, now: datetime, *, grace: timedelta) -> Self:
        """Ones that nobody works on and nothing will wake; always none, or a tick is broken."""
        overdue = Q(state=OpState.RUNNING, lease_until__lt=now - grace)
        unseen = Q(
            Q(lease_until=None) | Q(lease_until__lt=now - grace),
            state__in=[OpState.UNCONFIRMED, OpState.CANCELLING],
            due_at__lt=now - grace,
        )
        passed_over = Q(READY, state__in=WAITING, due_at__lt=now - grace)
        return self.filter(overdue | unseen | passed_over)

    def dead(self) -> Self:
        return self.filter(state=OpState.DEAD)

    def touched_since(self, moment: datetime) -> Self:
        """Written after it; those in doubt always, since looking again is not a change, and those
        that fell silent, which nobody writes down."""
        doubt = Q(state__in=[OpState.UNCONFIRMED, OpState.CANCELLING])
        silent = Q(state=OpState.RUNNING, progress_at__lt=moment)
        written = Q(changed_at__gte=moment) | Q(progress_at__gte=moment)
        return self.filter(written | doubt | silent)


class NodeBackendQuerySet(models.QuerySet["NodeBackend"]):
    def of_present_nodes(self) -> Self:
        return self.filter(node__retired_at=None)

    def ours(self) -> Self:
        """Not part of the worker's own image: can be upgraded and deleted."""
        return self.filter(is_system=False)
