"""How a machine goes for good, and how it may come back. Rows are never deleted."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from clustermgr.lib import text
from clustermgr.lib.errors import InvalidMove
from clustermgr.lib.machine import move
from nodes.models import BackendNode, JoinToken, NodeModel
from nodes.services import credentials, events, facts, jointokens, replicas
from nodes.states import Liveness


@transaction.atomic
def retire(node: BackendNode, *, by: str, reason: str, now: datetime) -> BackendNode:
    """Send a node away: nothing it says counts until it is readmitted; its history stays.

    In place of deletion: a LocalAI worker whose row is gone beats a dead id until somebody
    restarts it. Retiring twice changes nothing.
    """
    why = text.reason(reason)
    # The token before the node: the order in which registration locks them.
    for token in JoinToken.objects.filter(nodes=node, one_machine=True):
        jointokens.revoke(token, by=by, now=now, reason=f"{node.name} was retired.")
    order = {"retired_at": now, "retired_by": by, "retire_reason": why}
    if not facts.write(node, when=Q(retired_at=None), now=now, **order):
        return node
    if node.liveness != Liveness.OFFLINE:
        move(node, Liveness.OFFLINE, liveness_changed_at=now, liveness_reason="retired")
    removed = replicas.lose(
        NodeModel.objects.filter(node=node), reason="Its node was retired.", now=now, by=by
    )
    credentials.withdraw(node, by=by, reason=f"{node.name} was retired.", now=now)
    after = {"replicas_removed": len(removed)}
    events.record("node.retired", actor=by, now=now, node=node, reason=why, after=after)
    return node


@transaction.atomic
def readmit(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """Undo a retirement; the node starts over as pending."""
    gone = Q(retired_at__isnull=False)
    if not facts.write(
        node,
        when=gone,
        now=now,
        retired_at=None,
        retired_by="",
        retire_reason="",
        approved_at=None,
        approved_by="",
    ):
        raise InvalidMove(f"{node.name} is not retired.")
    events.record("node.readmitted", actor=by, now=now, node=node)
    # Retirement revoked the token that was the machine's own; it cannot join with it again.
    if node.join_token is not None and node.join_token.one_machine:
        release_token(node, by=by, now=now)
    return node


@transaction.atomic
def release_token(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """Let the next registration bring another token; until then no token acts on the node.

    Whoever brings it has yet to be approved: the approval was for the machine behind the old one.
    """
    before = node.join_token.name if node.join_token else ""
    fresh = {"join_token": None, "approved_at": None, "approved_by": ""}
    if facts.write(node, when=Q(join_token__isnull=False), now=now, **fresh):
        credentials.withdraw(node, by=by, reason="The node was released from its token.", now=now)
        events.record("node.token_released", actor=by, now=now, node=node, before={"token": before})
    return node
