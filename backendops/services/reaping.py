"""Nothing stays stuck: claims of dead processes go on, what is in doubt is asked about."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from backendops import verifying
from backendops.models import PendingBackendOp
from backendops.services import executing, inventory, settling
from backendops.services.inventory import Told
from backendops.states import OpState, Verb
from clustermgr.lib.errors import NodeUnreachable
from clustermgr.lib.queue import after_commit
from nodes.gateway import NodeGateway
from nodes.services import lifecycle

log = logging.getLogger(__name__)

MOST = 500  # nodes in one round of questions


@transaction.atomic
def reap(*, now: datetime) -> int:
    """Take the claims of processes that are gone, and ring for what wants a look."""
    rows = PendingBackendOp.objects.abandoned(now).select_related("node").order_by("id")
    abandoned = list(rows.select_for_update(no_key=True, of=("self",), skip_locked=True))
    for op in abandoned:
        executing.let_go(op, now=now)
    if abandoned:
        log.info("claims of dead processes reaped", extra={"ops": len(abandoned)})
        after_commit("backendops.dispatch")
    if PendingBackendOp.objects.to_check(now).exists() or inventory.newcomers(now=now):
        after_commit("backendops.check_ops")
    return len(abandoned)


def check_due(*, gateway: NodeGateway, now: datetime) -> int:
    """Ask every node that has something in doubt or was never heard; the number asked."""
    doubtful = PendingBackendOp.objects.to_check(now).order_by("node_id")
    unclear = doubtful.values_list("node_id", flat=True).distinct()
    nodes = list({*unclear, *inventory.newcomers(now=now)})[:MOST]
    look(nodes, gateway=gateway, now=now)
    return len(nodes)


def look(node_ids: Sequence[UUID], *, gateway: NodeGateway, now: datetime) -> dict[UUID, Told]:
    """Ask these nodes what they have, all at once, and settle whatever that tells."""
    if not node_ids:
        return {}
    connection.close()
    answers = inventory.ask(node_ids, gateway=gateway, now=now)
    by_node: dict[UUID, list[PendingBackendOp]] = defaultdict(list)
    doubtful = PendingBackendOp.objects.in_doubt(now).filter(node__in=node_ids)
    for op in doubtful.select_related("node").order_by("id"):
        by_node[op.node_id].append(op)
    for node_id, ops in by_node.items():
        for op in ops:
            _settle(op, answers[node_id], now=now)
    return answers


def _settle(op: PendingBackendOp, told: Told, *, now: datetime) -> None:
    if isinstance(told, NodeUnreachable):
        _gone(op, now=now)
        return
    late = op.give_up_at is not None and now >= op.give_up_at
    if isinstance(told, tuple):
        there = verifying.find(executing.names_of(op), told)
        seen = verifying.verdict(Verb(op.verb), op.backend, before=op.before, there=there)
        if seen.done:
            settling.succeeded(op, now=now, note="The node's inventory shows it.", there=there)
        elif late:
            _too_late(op, seen.words, now=now)
        else:
            settling.still_unclear(op, now=now)
    elif late:
        _too_late(op, str(told), now=now)
    else:
        settling.still_unclear(op, now=now)


def _gone(op: PendingBackendOp, *, now: datetime) -> None:
    """Nobody listens: what was under way there ended with the worker."""
    lifecycle.mark_unreachable(op.node_id, now=now, reason="It stopped listening at its work.")
    if op.state == OpState.CANCELLING:
        settling.cancelled(op, "The worker is gone.", now=now)
    else:
        settling.failed(op, "The worker stopped listening before it had answered.", now=now)


def _too_late(op: PendingBackendOp, words: str, *, now: datetime) -> None:
    if op.state == OpState.CANCELLING:
        settling.cancelled(op, f"The node did not finish it. {words}", now=now)
    else:
        settling.failed(op, f"Not done in time: {words}", now=now)
