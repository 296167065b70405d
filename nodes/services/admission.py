"""Which node a worker speaks for, and whom we do not listen to."""

import hmac
from datetime import datetime
from uuid import UUID

from clustermgr.lib.errors import DomainError, Forbidden, Gone, NotFound, Unauthenticated
from nodes.models import BackendNode, JoinToken
from nodes.services import jointokens, refusals

MISSING = "registration token required"


def node_of(node_id: UUID, *, token: JoinToken, now: datetime) -> BackendNode:
    """The node with this id if `token` may act on it, else a refusal and an attention event.

    A LocalAI worker ignores the refusal and beats on (D-8), so an operator has to hear of it.
    """
    node = BackendNode.objects.filter(pk=node_id).first()
    try:
        return _admitted(node, node_id, token)
    except DomainError as refusal:
        refusals.note(
            "worker.refused",
            # ids are free to invent, nodes are not: a flood of invented ones is one event
            who=f"node {node.pk}" if node else f"unknown ids of {token.name}",
            actor=f"token {token.name}",
            reason=str(refusal),
            now=now,
            node=node,
            subject=node.name if node else str(node_id),
        )
        raise


def check_repeated(told: str, *, secret: str, token: JoinToken, now: datetime) -> None:
    """Upstream wants the token in the body as well, and says which of the two is wrong."""
    if hmac.compare_digest(told.encode(errors="replace"), secret.encode(errors="replace")):
        return
    refusal = Unauthenticated("invalid registration token" if told else MISSING)
    refusals.note(
        "join.refused",
        who=f"body of {token.name}",
        actor=f"token {token.name}",
        reason="The body of the registration carries another token than its header.",
        now=now,
        subject=token.name,
    )
    raise refusal


def _admitted(node: BackendNode | None, node_id: UUID, token: JoinToken) -> BackendNode:
    if node is None:
        raise NotFound(f"There is no node {node_id}; the worker must register again.")
    if not jointokens.may_act_on(token, node):
        raise Forbidden(f"The token {token.name} may not act on {node.name}.")
    if node.retired_at is not None:
        raise Gone(f"{node.name} was retired; an operator must readmit it.")
    return node
