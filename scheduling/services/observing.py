"""What workers really run: the authority about replicas, and the only sight of strays.

No answer is not an empty list. Without one the process itself is asked, and only "gone" counts
against it: busy is alive. Misses are counted on the row, by the cluster and not by a process. One
is enough where there are two witnesses: the worker does not list it, and its port refuses.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Case, F, Q, When
from django.db.models.functions import Coalesce

from clustermgr.lib.errors import WorkerTokenUnknown
from nodes import backendrpc
from nodes.backendrpc import Health
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import bearers
from nodes.states import ReplicaState
from nodes.wire import RunningModel
from scheduling.services import crashing, strays
from scheduling.services.strays import Slot, Told

CONFIRMED_FOR = timedelta(minutes=2)  # so long a confirmation is good, if nobody answers
MISS_EVERY = timedelta(seconds=8)  # two looks at once are one miss
MISSES = 2  # not listed: it gets no more requests, and is forgotten when the last is over
AT_ONCE = 16  # processes that are asked themselves
MISSES_AT_MOST = 3  # nobody at its address, and no word of its worker

Key = tuple[str, int]


def observe(
    *, gateway: NodeGateway, clock: Callable[[], datetime], only: UUID | None = None
) -> None:
    """Ask every node at once, or `only` that one, and settle what all of them told.

    A quiet fleet costs three statements, and whatever is told a few more, never one per node.
    """
    online = BackendNode.objects.approved().backends().online().select_related("join_token")
    nodes = list(online if only is None else online.filter(pk=only))
    asked_at = clock()
    connection.close()
    answers = gateway.running_models_of([node.pk for node in nodes])
    rows = _rows_by_node(only)
    told = {node.pk: answer for node in nodes if isinstance(answer := answers[node.pk], tuple)}
    settle(told, rows=rows, asked_at=asked_at)
    strays.note(told, owned=_slots(rows), asked_at=asked_at)
    # Not called unreachable for it: whoever never listened would flap with each look
    _ask_processes([node for node in nodes if node.pk not in told], now=asked_at)


def settle(told: Told, *, rows: Mapping[UUID, Sequence[NodeModel]], asked_at: datetime) -> None:
    """Believe the workers: what they list lives, what they do not list is missed, or gone."""
    alive = {node: _keys(running) for node, running in told.items()}
    loaded = [
        row
        for node in told
        for row in rows.get(node, ())
        if row.state == ReplicaState.LOADED and row.updated_at < asked_at
    ]
    listed = [row for row in loaded if _key(row) in alive[row.node_id]]
    missing = [row for row in loaded if _key(row) not in alive[row.node_id]]
    if news := [row.pk for row in listed if _has_news(row, now=asked_at)]:
        _confirm(news, asked_at=asked_at)
    if missing:
        dead = _refusing([row for row in missing if row.address])
        lost = _miss_and_forget([row.pk for row in missing], dead=dead, asked_at=asked_at)
        if lost:
            crashing.settle(lost, now=asked_at)


def _keys(running: Sequence[RunningModel]) -> set[Key]:
    return {(process.model_id, process.replica_index) for process in running}


def _rows_by_node(only: UUID | None) -> dict[UUID, list[NodeModel]]:
    there = NodeModel.objects.defer("model_options")
    rows: dict[UUID, list[NodeModel]] = defaultdict(list)
    for row in there if only is None else there.filter(node=only):
        rows[row.node_id].append(row)
    return rows


def _key(row: NodeModel) -> Key:
    return row.model_name, row.replica_index


def _slots(rows: Mapping[UUID, Sequence[NodeModel]]) -> set[Slot]:
    return {(node, *_key(row)) for node, taken in rows.items() for row in taken}


def _has_news(row: NodeModel, *, now: datetime) -> bool:
    """Whether it is worth writing down that it lives: most rows of most looks need no write."""
    confirmed = row.last_confirmed_at
    fresh = confirmed is not None and confirmed > now - CONFIRMED_FOR
    return bool(row.misses or row.suspect_since or not fresh)


def _loaded(asked_at: datetime) -> NodeModelQuerySet:
    """What was loaded when the question went out; what came later cannot be in the answer."""
    return NodeModel.objects.filter(state=ReplicaState.LOADED, updated_at__lt=asked_at)


@transaction.atomic
def _confirm(ids: Sequence[UUID], *, asked_at: datetime) -> None:
    """Nobody waits for this: whoever is just being changed is confirmed by the next look."""
    rows = _loaded(asked_at).filter(pk__in=ids).order_by("pk")
    held = rows.select_for_update(no_key=True, skip_locked=True).values_list("pk", flat=True)
    NodeModel.objects.filter(pk__in=list(held)).update(
        last_confirmed_at=asked_at, misses=0, missed_at=None, suspect_since=None
    )


@transaction.atomic
def _miss_and_forget(
    ids: Sequence[UUID], *, dead: Collection[UUID], asked_at: datetime
) -> list[NodeModel]:
    rows = _loaded(asked_at).filter(pk__in=ids).order_by("pk").select_for_update(no_key=True)
    held = list(rows.values_list("pk", flat=True))
    _miss(held, now=asked_at)
    return _forget(held, dead=dead, now=asked_at)


def _old(now: datetime) -> Q:
    return Q(last_confirmed_at=None) | Q(last_confirmed_at__lte=now - CONFIRMED_FOR)


def _miss(ids: Sequence[UUID], *, now: datetime) -> None:
    fresh = Q(missed_at=None) | Q(missed_at__lte=now - MISS_EVERY)
    rows = NodeModel.objects.filter(fresh, pk__in=ids)
    doubted = Case(
        When(misses__gte=MISSES - 1, then=Coalesce("suspect_since", now)), default="suspect_since"
    )
    rows.update(misses=F("misses") + 1, missed_at=now, suspect_since=doubted)


def _refusing(rows: Sequence[NodeModel]) -> set[UUID]:
    """Those at whose address nobody listens: with the worker's word, no second look is needed."""
    connection.close()
    with ThreadPoolExecutor(AT_ONCE) as crowd:
        refused = list(crowd.map(backendrpc.refuses, [row.address for row in rows]))
    return {row.pk for row, gone in zip(rows, refused, strict=True) if gone}


def _forget(ids: Sequence[UUID], *, dead: Collection[UUID], now: datetime) -> list[NodeModel]:
    enough = Q(misses__gte=MISSES, in_flight=0)
    rows = NodeModel.objects.filter(enough | Q(pk__in=dead), pk__in=ids, state=ReplicaState.LOADED)
    return crashing.bury(rows, reason="Its worker does not run it any more.", now=now)


def _ask_processes(nodes: Sequence[BackendNode], *, now: datetime) -> None:
    """Nobody told: ask the processes whose last sign of life is old, many at a time."""
    doubt = _old(now) | Q(suspect_since__isnull=False)
    rows = _loaded(now).filter(doubt, node__in=nodes).exclude(address="")
    asked = list(rows.values_list("pk", "node_id", "address"))
    if not asked:
        return
    tokens = {node.pk: _token(node) for node in nodes}
    connection.close()

    def ask(row: tuple[UUID, UUID, str]) -> Health:
        return backendrpc.health(row[2], token=tokens[row[1]])

    with ThreadPoolExecutor(AT_ONCE) as crowd:
        told = list(crowd.map(ask, asked))
    seen: dict[Health, list[UUID]] = defaultdict(list)
    for (pk, _, _), health in zip(asked, told, strict=True):
        seen[health].append(pk)
    lost = note(seen, now=now)
    if lost:
        crashing.settle(lost, now=now)


@transaction.atomic
def note(seen: dict[Health, list[UUID]], *, now: datetime) -> list[NodeModel]:
    """Write down what processes answered themselves; those that are gone."""
    NodeModel.objects.filter(pk__in=[pk for ids in seen.values() for pk in ids]).locked()
    # Alive or busy: somebody is there. That it is still our process, only the worker can say:
    # a suspect stays one.
    living = NodeModel.objects.filter(pk__in=[*seen[Health.ALIVE], *seen[Health.BUSY]])
    living.update(last_confirmed_at=now, misses=0, missed_at=None)
    _miss(seen[Health.GONE], now=now)
    gone = NodeModel.objects.filter(
        pk__in=seen[Health.GONE], misses__gte=MISSES_AT_MOST, state=ReplicaState.LOADED
    )
    return crashing.bury(gone, reason="Nobody answers at its address.", now=now)


def _token(node: BackendNode) -> str:
    """Whoever refuses our token lives: an unknown one is no obstacle here."""
    try:
        return bearers.of(node)
    except WorkerTokenUnknown:
        return ""
