"""Sets of rows worth a name. They never write and never read a clock."""

from datetime import datetime
from typing import TYPE_CHECKING, Self

from django.db import models

from nodes.states import Liveness, NodeType, ReplicaState

if TYPE_CHECKING:
    from nodes.models import BackendNode, NodeModel


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
        """May serve requests with what it has: let in, alive, not being emptied.

        Cordoned and quarantined nodes stay routable: they keep what they have, and get
        nothing new.
        """
        return self.approved().filter(liveness=Liveness.HEALTHY, drain_requested_at=None)

    def schedulable(self) -> Self:
        """May receive new replicas."""
        return self.routable().backends().filter(cordoned_at=None, quarantined_until=None)

    def being_emptied(self) -> Self:
        """Drains that are not finished yet; served by the index node_draining."""
        return self.present().filter(drain_requested_at__isnull=False, drained_at=None)


class NodeModelQuerySet(models.QuerySet["NodeModel"]):
    def serving(self) -> Self:
        """Replicas a request may be sent to."""
        return self.filter(
            state=ReplicaState.LOADED,
            suspect_since=None,
            node__retired_at=None,
            node__approved_at__isnull=False,
            node__liveness=Liveness.HEALTHY,
            node__drain_requested_at=None,
        )

    def suspect_since_before(self, moment: datetime) -> Self:
        """Loaded replicas in doubt that a question asked at `moment` can settle.

        One that is being unloaded is not: its slot stays taken until the stop is acknowledged,
        and a worker does not list what it is stopping.
        """
        return self.filter(state=ReplicaState.LOADED, suspect_since__lte=moment)
