"""What workers really run: the authority about replicas, and the only sight of strays.

No answer is not an empty list. Without one the process itself is asked, and only "gone" counts
against it: busy is alive. Misses are counted on the row, by the cluster and not by a process.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from clustermgr.lib.errors import BusError, NodeRefused, NodeUnreachable, WorkerTokenUnknown
from nodes import backendrpc
from nodes.backendrpc import Health
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import bearers, lifecycle, replicas
from nodes.states import ReplicaState
from nodes.wire import RunningModel
from scheduling.services import strays

log = logging.getLogger(__name__)

CONFIRMED_FOR = timedelta(minutes=2)  # so long a confirmation is good, if nobody answers
MISS_EVERY = timedelta(seconds=15)  # two looks at once are one miss
MISSES = 2  # not listed, and idle
MISSES_AT_MOST = 3  # not listed, whatever its counter says; or gone without an answer

Key = tuple[str, int]


def observe(*, gateway: NodeGateway, clock: Callable[[], datetime]) -> None:
    """Ask every node at once, and settle what each told."""
    nodes = list(BackendNode.objects.approved().backends().online().order_by("pk"))
    asked_at = clock()
    connection.close()
    answers = gateway.running_models_of([node.pk for node in nodes])
    for node in nodes:
        told = answers[node.pk]
        if isinstance(told, tuple):
            settle(node, running=told, asked_at=asked_at)
        else:
            _without_answer(node, told, now=asked_at)


def settle(node: BackendNode, *, running: Sequence[RunningModel], asked_at: datetime) -> None:
    """Believe the worker: what it lists lives, what it does not list is missed."""
    alive = {(process.model_id, process.replica_index) for process in running}
    with transaction.atomic():
        rows = _loaded(node.pk, asked_at).order_by("pk").select_for_update(no_key=True)
        missing: list[UUID] = []
        confirmed: list[UUID] = []
        for row in rows:
            listed = (row.model_name, row.replica_index) in alive
            (confirmed if listed else missing).append(row.pk)
        _confirm(confirmed, now=asked_at)
        _miss(missing, now=asked_at)
        _forget(missing)
    strays.note(node, running=running, asked_at=asked_at)


def _loaded(node_id: UUID, asked_at: datetime) -> NodeModelQuerySet:
    """What was loaded when the question went out; what came later cannot be in the answer."""
    loaded = NodeModel.objects.filter(node=node_id, state=ReplicaState.LOADED)
    return loaded.filter(updated_at__lt=asked_at)


def _confirm(ids: Sequence[UUID], *, now: datetime) -> None:
    # Only where it says something new: most rows of most looks need no write
    old = Q(last_confirmed_at=None) | Q(last_confirmed_at__lte=now - CONFIRMED_FOR)
    news = old | Q(misses__gt=0) | Q(suspect_since__isnull=False)
    rows = NodeModel.objects.filter(news, pk__in=ids)
    rows.update(last_confirmed_at=now, misses=0, missed_at=None, suspect_since=None)


def _miss(ids: Sequence[UUID], *, now: datetime) -> None:
    fresh = Q(missed_at=None) | Q(missed_at__lte=now - MISS_EVERY)
    rows = NodeModel.objects.filter(fresh, pk__in=ids)
    rows.update(misses=F("misses") + 1, missed_at=now)


def _forget(ids: Sequence[UUID]) -> None:
    enough = Q(misses__gte=MISSES_AT_MOST) | Q(misses__gte=MISSES, in_flight=0)
    rows = NodeModel.objects.filter(enough, pk__in=ids, state=ReplicaState.LOADED)
    replicas.remove(rows, reason="its worker does not run it any more")


def _without_answer(node: BackendNode, why: BusError | NodeRefused, *, now: datetime) -> None:
    """Nobody told: ask the processes themselves, if their last sign of life is old."""
    if isinstance(why, NodeUnreachable):
        lifecycle.mark_unreachable(node.pk, now=now, reason=str(why))
    old = Q(last_confirmed_at=None) | Q(last_confirmed_at__lte=now - CONFIRMED_FOR)
    doubt = old | Q(suspect_since__isnull=False)
    rows = list(_loaded(node.pk, now).filter(doubt).exclude(address=""))
    if not rows:
        return
    token = _token(node)
    connection.close()
    seen: dict[Health, list[UUID]] = defaultdict(list)
    for row in rows:
        seen[backendrpc.health(row.address, token=token)].append(row.pk)
    _write(seen, now=now)


@transaction.atomic
def _write(seen: dict[Health, list[UUID]], *, now: datetime) -> None:
    # Alive or busy: somebody is there. That it is still our process, only the worker can say:
    # a suspect stays one.
    living = NodeModel.objects.filter(pk__in=[*seen[Health.ALIVE], *seen[Health.BUSY]])
    living.update(last_confirmed_at=now, misses=0, missed_at=None)
    _miss(seen[Health.GONE], now=now)
    gone = NodeModel.objects.filter(
        pk__in=seen[Health.GONE], misses__gte=MISSES_AT_MOST, state=ReplicaState.LOADED
    )
    replicas.remove(gone, reason="nobody answers at its address")


def _token(node: BackendNode) -> str:
    """Whoever refuses our token lives: an unknown one is no obstacle here."""
    try:
        return bearers.of(node)
    except WorkerTokenUnknown:
        return ""
