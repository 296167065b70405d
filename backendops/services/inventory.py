"""What is installed where, as the nodes told it; pages read these rows and never ask a node."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from backendops import statements
from backendops.models import NodeBackend, NodeInventory
from clustermgr.lib.errors import BusError, NodeRefused, NodeUnreachable
from nodes.gateway import NodeGateway
from nodes.models import BackendNode
from nodes.services import lifecycle
from nodes.wire import InstalledBackend

Told = tuple[InstalledBackend, ...] | BusError | NodeRefused

# A pending worker asks again every half minute whether it was let in
NEWCOMER_FOR = timedelta(minutes=2)
NEWCOMER_ASKED_EVERY = timedelta(seconds=5)
COLUMNS = ("version", "digest", "uri", "gallery_url", "installed_at", "is_system", "is_meta")


def askable() -> list[UUID]:
    """Who can be asked: agents do not listen, and whoever is away would not hear."""
    nodes = BackendNode.objects.approved().backends().online()
    return list(nodes.order_by("pk").values_list("pk", flat=True))


def ask(node_ids: Sequence[UUID], *, gateway: NodeGateway, now: datetime) -> dict[UUID, Told]:
    """Ask these nodes at once and write down what each told, or why it did not."""
    answers = gateway.list_backends_of(node_ids)
    told = {node_id: answer for node_id, answer in answers.items() if isinstance(answer, tuple)}
    news = told.keys() - _confirm(told, now=now)
    for node_id, answer in answers.items():
        if not isinstance(answer, tuple):
            note_silence(node_id, answer, now=now)
        elif node_id in news:
            store(node_id, answer, now=now)
    return answers


@transaction.atomic
def _confirm(told: Mapping[UUID, Sequence[InstalledBackend]], *, now: datetime) -> set[UUID]:
    """Note for all nodes without news, at once, that there are none; who they are."""
    known: dict[UUID, set[tuple[object, ...]]] = {node_id: set() for node_id in told}
    rows = NodeBackend.objects.filter(node__in=told)
    for node_id, *columns in rows.values_list("node_id", "name", *COLUMNS):
        known[node_id].add(tuple(columns))
    same = {
        node_id
        for node_id, backends in told.items()
        if known[node_id]
        == {(one.name, *(getattr(one, column) for column in COLUMNS)) for one in backends}
    }
    if same and _observe(same, now=now):
        older = NodeBackend.objects.filter(node__in=same, observed_at__lt=now)
        older.update(observed_at=now)
    return same


def _observe(node_ids: Collection[UUID], *, now: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statements.OBSERVED, {"nodes": list(node_ids), "now": now})
        return int(cursor.rowcount)


@transaction.atomic
def store(node_id: UUID, backends: Sequence[InstalledBackend], *, now: datetime) -> None:
    """Make the rows of this node be what it told; an answer older than the rows is dropped."""
    if not _observe([node_id], now=now):
        return
    rows = {
        told.name: NodeBackend(
            node_id=node_id,
            name=told.name,
            first_seen_at=now,
            observed_at=now,
            **{column: getattr(told, column) for column in COLUMNS},
        )
        for told in backends
    }
    NodeBackend.objects.filter(node_id=node_id).exclude(name__in=rows).delete()
    NodeBackend.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["node", "name"],
        update_fields=[*COLUMNS, "observed_at"],
    )


def newcomers(*, now: datetime) -> list[UUID]:
    """Let in, or back, and not heard yet: a worker registers a moment before it listens."""
    back = Q(recoveries__0__gt=now - NEWCOMER_FOR) & ~Q(inventory__error="")
    new = Q(approved_at__gt=now - NEWCOMER_FOR, inventory__observed_at=None)
    unheard = BackendNode.objects.filter(new | back)
    lately = unheard.filter(inventory__asked_at__gt=now - NEWCOMER_ASKED_EVERY)
    nodes = unheard.approved().backends().online().exclude(pk__in=lately.values("pk"))
    return list(nodes.order_by("pk").values_list("pk", flat=True))


def is_newcomer(node: BackendNode, *, now: datetime) -> bool:
    """Whether that nobody listens may only mean that nobody listens yet."""
    if node.approved_at is None:
        return False
    came = max([node.approved_at, *node.recoveries])
    if now - came > NEWCOMER_FOR:
        return False
    return not NodeInventory.objects.filter(node=node, observed_at__gte=came).exists()


def note_silence(node_id: UUID, why: BusError | NodeRefused, *, now: datetime) -> None:
    """Remember that it did not tell; the rows stay, and their age shows."""
    NodeInventory.objects.update_or_create(
        node_id=node_id, defaults={"asked_at": now, "error": str(why)}
    )
    node = BackendNode.objects.get(pk=node_id)
    listened = _used_to_answer(node) and not is_newcomer(node, now=now)
    if isinstance(why, NodeUnreachable) and listened:
        lifecycle.mark_unreachable(node_id, now=now, reason=str(why))


def _used_to_answer(node: BackendNode) -> bool:
    """Whether silence is news: it has told us something since it was last called healthy.

    Its heartbeats bring it back; if each question then took it away again, it would flap for as
    long as it does not listen.
    """
    told = NodeInventory.objects.filter(node=node, observed_at__gt=node.liveness_changed_at)
    return told.exists()
