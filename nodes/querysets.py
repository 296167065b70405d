"""Sets of rows worth a name. They never write and never read a clock."""

from datetime import datetime
from typing import TYPE_CHECKING, Self
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import Case, Count, F, Func, OuterRef, Q, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce
from django.db.models.lookups import GreaterThan, LessThan

from nodes.selectors import NUMBER, Operator, Requirement, Selector
from nodes.states import LABEL_PRECEDENCE, Liveness, NodeStatus, NodeType, ReplicaState

if TYPE_CHECKING:
    from nodes.models import BackendNode, JoinToken, NodeCredential, NodeLabel, NodeModel

# PostgreSQL's numeric without bounds, which `Cast` cannot name
EXACT = models.DecimalField()


class BackendNodeQuerySet(models.QuerySet["BackendNode"]):
    def present(self) -> Self:
        """Not retired: what an operator means by "my nodes"."""
        return self.filter(retired_at=None)

    def approved(self) -> Self:
        return self.present().filter(approved_at__isnull=False)

    def waiting_for_approval(self) -> Self:
        return self.present().filter(approved_at=None)

    def backends(self) -> Self:
        return self.filter(node_type=NodeType.BACKEND)

    def routable(self) -> Self:
        """What it has is counted on: let in, alive, not being emptied.

        Cordoned and quarantined nodes stay routable: they keep what they have, and get
        nothing new. A node that is being emptied may still serve, see `serving`.
        """
        return self.approved().filter(liveness=Liveness.HEALTHY, drain_requested_at=None)

    def schedulable(self) -> Self:
        """May receive new replicas."""
        return self.routable().backends().filter(cordoned_at=None, quarantined_until=None)

    def in_status(self, status: NodeStatus) -> Self:
        """Those whose `status` property reads so; states.status_of in SQL."""
        if status == NodeStatus.RETIRED:
            return self.filter(retired_at__isnull=False)
        if status == NodeStatus.PENDING:
            return self.waiting_for_approval()
        if status == NodeStatus.DRAINING:
            return self.approved().filter(drain_requested_at__isnull=False)
        return self.approved().filter(drain_requested_at=None, liveness=status.value)

    def with_load(self) -> Self:
        """Each with its `model_count` and `in_flight_count`, taints at hand: one query more."""
        replicas = apps.get_model("nodes", "NodeModel").objects.filter(
            node=OuterRef("pk"), state=ReplicaState.LOADED
        )
        counted = replicas.order_by().values("node").annotate(n=Count("pk"), busy=Sum("in_flight"))
        return self.annotate(
            model_count=Coalesce(Subquery(counted.values("n")), 0),
            in_flight_count=Coalesce(Subquery(counted.values("busy")), 0),
        ).prefetch_related("taints")

    def online(self) -> Self:
        """Beating, as far as we have noticed; let in or not."""
        return self.present().exclude(liveness=Liveness.OFFLINE)

    def suspects(self, *, now: datetime, stale_before: datetime) -> Self:
        """The few a sweep may have to move: gone silent, back again, or quarantined long enough."""
        silent = ~Q(liveness=Liveness.OFFLINE) & Q(last_heartbeat__lt=stale_before)
        back = ~Q(liveness=Liveness.HEALTHY) & Q(
            left_at=None, last_heartbeat__gt=F("liveness_changed_at")
        )
        return self.present().filter(silent | back | Q(quarantined_until__lte=now))

    def matching(self, selector: Selector) -> Self:
        """Nodes whose *effective* labels the selector matches, as `Selector.matches` would say."""
        nodes = self
        for number, requirement in enumerate(selector.requirements):
            name = f"label_{number}"  # `label_once_per_owner` answers each in one descent
            nodes = nodes.alias(**{name: _effective(requirement.key)})
            nodes = nodes.filter(_holds(name, requirement))
        return nodes

    def speaking_with_usable_tokens(self, now: datetime) -> Self:
        """Those whose join token is neither revoked nor expired."""
        forever = Q(join_token__expires_at=None) | Q(join_token__expires_at__gt=now)
        return self.filter(forever, join_token__isnull=False, join_token__revoked_at=None)

    def being_emptied(self) -> Self:
        """Drains that are not finished yet; served by the index node_draining."""
        return self.present().filter(drain_requested_at__isnull=False, drained_at=None)

    def to_be_stopped(self, *, told_before: datetime) -> Self:
        """Empty, with a worker that is to exit and was not told so lately."""
        ordered = self.present().filter(stop_ordered_at__isnull=False, drained_at__isnull=False)
        return ordered.exclude(liveness=Liveness.OFFLINE).filter(
            Q(stop_told_at=None) | Q(stop_told_at__lte=told_before)
        )


class NodeModelQuerySet(models.QuerySet["NodeModel"]):
    def serving(self) -> Self:
        """Replicas a request may be sent to.

        A drain does not stand here: it withdraws each replica when nobody needs it there.
        """
        return self.filter(
            state=ReplicaState.LOADED,
            suspect_since=None,
            outdated_at=None,
            withdrawn_at=None,
            node__retired_at=None,
            node__approved_at__isnull=False,
            node__liveness=Liveness.HEALTHY,
        )

    def locked(self) -> list[UUID]:
        """Lock them, in the order in which requests do; whoever changes many begins with this.

        An UPDATE locks rows as it finds them: it and a burst of picks would wait in a circle.
        """
        rows = self.order_by("pk").select_for_update(no_key=True)
        return list(rows.values_list("pk", flat=True))

    def suspect_since_before(self, moment: datetime) -> Self:
        """Loaded replicas in doubt that a question asked at `moment` can settle.

        One that is being unloaded is not: its slot stays taken until the stop is acknowledged,
        and a worker does not list what it is stopping.
        """
        return self.filter(state=ReplicaState.LOADED, suspect_since__lte=moment)


class JoinTokenQuerySet(models.QuerySet["JoinToken"]):
    def ended(self, now: datetime) -> Self:
        """Revoked or expired."""
        return self.filter(Q(revoked_at__isnull=False) | Q(expires_at__lte=now))


class NodeCredentialQuerySet(models.QuerySet["NodeCredential"]):
    def live(self, now: datetime) -> Self:
        """Good for a connection."""
        return self.filter(revoked_at=None, expires_at__gt=now)

    def to_refuse(self, now: datetime) -> Self:
        """Revoked, and not yet harmless by age."""
        return self.filter(revoked_at__isnull=False, expires_at__gt=now)


class NodeLabelQuerySet(models.QuerySet["NodeLabel"]):
    def weakest_first(self) -> Self:
        """So that whoever reads them in turn ends with the value that counts."""
        return self.order_by(_rank().desc())

    def strongest_first(self) -> Self:
        return self.order_by(_rank())


def _rank() -> Case:
    return Case(
        *(When(source=source, then=Value(place)) for place, source in enumerate(LABEL_PRECEDENCE)),
        output_field=models.SmallIntegerField(),
    )


def _labels() -> NodeLabelQuerySet:
    # By name: models stand above querysets
    found: NodeLabelQuerySet = apps.get_model("nodes", "NodeLabel").objects.all()
    return found


def _effective(key: str) -> Subquery:
    """The strongest owner's value of `key` on the outer node; NULL where nobody set it."""
    rows = _labels().filter(node=OuterRef("pk"), key=key).strongest_first()
    return Subquery(rows.values("value")[:1])


def _holds(name: str, requirement: Requirement) -> Q:
    match requirement.operator:
        case Operator.IN:
            # Whoever's value it is: a few rows by `label_by_pair` spare most nodes the closer look
            anyone = _labels().filter(key=requirement.key, value__in=requirement.values)
            return Q(pk__in=anyone.values("node")) & Q(**{f"{name}__in": requirement.values})
        case Operator.NOT_IN:
            # Spelled out: `NULL NOT IN (...)` is neither true nor false
            return Q(**{f"{name}__isnull": True}) | ~Q(**{f"{name}__in": requirement.values})
        case Operator.EXISTS:
            return Q(**{f"{name}__isnull": False})
        case Operator.MISSING:
            return Q(**{f"{name}__isnull": True})
    return _compares(name, requirement)


def _compares(name: str, requirement: Requirement) -> Q:
    # The cast stands behind the test of its shape: text that is no number is no match, no error.
    number = Func(F(name), template="(%(expressions)s)::numeric", output_field=EXACT)
    shaped = When(**{f"{name}__regex": f"^{NUMBER}$"}, then=number)
    lookup = GreaterThan if requirement.operator is Operator.ABOVE else LessThan
    return Q(lookup(Case(shaped, output_field=EXACT), requirement.bound))
