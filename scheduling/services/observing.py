"""What workers really run: the authority about replicas, and the only sight of strays.

No answer is not an empty list. Without one the process itself is asked, and only "gone" counts
against it: busy is alive. Misses are counted on the row, by the cluster and not by a process. One
is enough where there are two witnesses: the worker does not list it, and its port refuses.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from clustermgr.lib.errors import WorkerTokenUnknown
from nodes import backendrpc
from nodes.backendrpc import Health
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import bearers, replicas
from nodes.states import ReplicaState
from nodes.wire import RunningModel
from scheduling.services import strays

CONFIRMED_FOR = timedelta(minutes=2)  # so long a confirmation is good, if nobody answers
MISS_EVERY = timedelta(seconds=8)  # two looks at once are one miss
MISSES = 2  # not listed, and idle
AT_ONCE = 16  # processes that are asked themselves
MISSES_AT_MOST = 3  # not listed, whatever its counter says; or gone without an answer

Key = tuple[str, int]


def observe(*, gateway: NodeGateway, clock: Callable[[], datetime]) -> None:
    """Ask every node at once, and settle what each told; a quiet fleet costs three statements."""
    nodes = list(BackendNode.objects.approved().backends().online().select_related("join_token"))
    asked_at = clock()
    connection.close()
    answers = gateway.running_models_of([node.pk for node in nodes])
    rows = _rows_by_node()
    known = strays.nodes_with_any()
    told = {node: answers[node.pk] for node in nodes}
    # Not called unreachable for it: whoever never listened would flap with each look
    silent = [node for node, answer in told.items() if not isinstance(answer, tuple)]
    news = {
        node: answer
        for node, answer in told.items()
        if isinstance(answer, tuple)
        and (node.pk in known or _has_news(rows[node.pk], answer, now=asked_at))
    }
    dead = _refusing(
        [row for node, answer in news.items() for row in _missed(rows[node.pk], answer)]
    )
    for node, answer in news.items():
        settle(node, running=answer, asked_at=asked_at, dead=dead)
    _ask_processes(silent, now=asked_at)


def settle(
    node: BackendNode,
    *,
    running: Sequence[RunningModel],
    asked_at: datetime,
    dead: Collection[UUID] = (),
) -> None:
    """Believe the worker: what it lists lives, what it does not list is missed; `dead` is gone."""
    alive = _keys(running)
    with transaction.atomic():
        rows = _loaded(asked_at).filter(node=node).order_by("pk").select_for_update(no_key=True)
        listed = {row.pk: (row.model_name, row.replica_index) in alive for row in rows}
        missing = [pk for pk, there in listed.items() if not there]
        _confirm([pk for pk, there in listed.items() if there], now=asked_at)
        _miss(missing, now=asked_at)
        _forget(missing, dead=dead)
    strays.note(node, running=running, asked_at=asked_at)


def _keys(running: Sequence[RunningModel]) -> set[Key]:
    return {(process.model_id, process.replica_index) for process in running}


def _rows_by_node() -> dict[UUID, list[NodeModel]]:
    rows: dict[UUID, list[NodeModel]] = defaultdict(list)
    for row in NodeModel.objects.defer("model_options"):
        rows[row.node_id].append(row)
    return rows


def _has_news(rows: Sequence[NodeModel], running: Sequence[RunningModel], *, now: datetime) -> bool:
    """Whether anything has to be written: somebody missing, unknown, or not confirmed lately."""
    owned = {(row.model_name, row.replica_index) for row in rows}
    loaded = [row for row in rows if row.state == ReplicaState.LOADED]
    serving = {(row.model_name, row.replica_index) for row in loaded}
    alive = _keys(running)
    if not alive <= owned or not serving <= alive:
        return True
    return any(
        row.misses
        or row.suspect_since
        or not row.last_confirmed_at
        or row.last_confirmed_at <= now - CONFIRMED_FOR
        for row in loaded
    )


def _loaded(asked_at: datetime) -> NodeModelQuerySet:
    """What was loaded when the question went out; what came later cannot be in the answer."""
    return NodeModel.objects.filter(state=ReplicaState.LOADED, updated_at__lt=asked_at)


def _confirm(ids: Sequence[UUID], *, now: datetime) -> None:
    # Only where it says something new: most rows of most looks need no write
    news = _old(now) | Q(misses__gt=0) | Q(suspect_since__isnull=False)
    rows = NodeModel.objects.filter(news, pk__in=ids)
    rows.update(last_confirmed_at=now, misses=0, missed_at=None, suspect_since=None)


def _old(now: datetime) -> Q:
    return Q(last_confirmed_at=None) | Q(last_confirmed_at__lte=now - CONFIRMED_FOR)


def _miss(ids: Sequence[UUID], *, now: datetime) -> None:
    fresh = Q(missed_at=None) | Q(missed_at__lte=now - MISS_EVERY)
    rows = NodeModel.objects.filter(fresh, pk__in=ids)
    rows.update(misses=F("misses") + 1, missed_at=now)


def _missed(rows: Sequence[NodeModel], running: Sequence[RunningModel]) -> list[NodeModel]:
    alive = _keys(running)
    loaded = [row for row in rows if row.state == ReplicaState.LOADED and row.address]
    return [row for row in loaded if (row.model_name, row.replica_index) not in alive]


def _refusing(rows: Sequence[NodeModel]) -> set[UUID]:
    """Those at whose address nobody listens: with the worker's word, no second look is needed."""
    if not rows:
        return set()
    connection.close()
    with ThreadPoolExecutor(AT_ONCE) as crowd:
        refused = list(crowd.map(backendrpc.refuses, [row.address for row in rows]))
    return {row.pk for row, gone in zip(rows, refused, strict=True) if gone}


def _forget(ids: Sequence[UUID], *, dead: Collection[UUID]) -> None:
    enough = Q(misses__gte=MISSES_AT_MOST) | Q(misses__gte=MISSES, in_flight=0)
    rows = NodeModel.objects.filter(enough | Q(pk__in=dead), pk__in=ids, state=ReplicaState.LOADED)
    replicas.lose(rows, reason="its worker does not run it any more")


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
    note(seen, now=now)


@transaction.atomic
def note(seen: dict[Health, list[UUID]], *, now: datetime) -> None:
    """Write down what processes answered themselves."""
    NodeModel.objects.filter(pk__in=[pk for ids in seen.values() for pk in ids]).locked()
    # Alive or busy: somebody is there. That it is still our process, only the worker can say:
    # a suspect stays one.
    living = NodeModel.objects.filter(pk__in=[*seen[Health.ALIVE], *seen[Health.BUSY]])
    living.update(last_confirmed_at=now, misses=0, missed_at=None)
    _miss(seen[Health.GONE], now=now)
    gone = NodeModel.objects.filter(
        pk__in=seen[Health.GONE], misses__gte=MISSES_AT_MOST, state=ReplicaState.LOADED
    )
    replicas.lose(gone, reason="nobody answers at its address")


def _token(node: BackendNode) -> str:
    """Whoever refuses our token lives: an unknown one is no obstacle here."""
    try:
        return bearers.of(node)
    except WorkerTokenUnknown:
        return ""
