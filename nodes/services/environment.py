"""Makes the secret of the environment (CLUSTER_REGISTRATION_TOKEN) a join token like the others."""

import logging
from datetime import datetime

from django.db import transaction

from clustermgr.lib.errors import Conflict
from clustermgr.lib.locks import LockKey, wait_lock
from nodes.models import BackendNode, JoinToken
from nodes.services import events, jointokens

ACTOR = "environment"

log = logging.getLogger(__name__)


@transaction.atomic
def sync(secret: str, *, auto_approve: bool, now: datetime) -> JoinToken | None:
    """Make `secret` the one live token from the environment; none when it is empty.

    Nodes that joined with an earlier value follow to the new one: the operator changed the
    lock, not the fleet.
    """
    # Every process of a deploy calls this at its start, perhaps with different values.
    wait_lock(LockKey.ENVIRONMENT_TOKEN)
    live = JoinToken.objects.filter(from_environment=True, revoked_at=None)
    for old in live.exclude(digest=jointokens.digest(secret)):
        jointokens.revoke(old, by=ACTOR, now=now, reason="The environment no longer has it.")
    if not secret:
        return None
    token = _known(secret, now) or _new(secret, now)
    if not jointokens.usable(token, now):
        log.warning("the registration token stays revoked", extra={"token": token.name})
        return None
    _approve_by_itself(token, auto_approve, now)
    _inherit_nodes(token, now)
    return token


def _known(secret: str, now: datetime) -> JoinToken | None:
    token = JoinToken.objects.filter(digest=jointokens.digest(secret)).first()
    if token is None:
        return None
    if not token.from_environment:
        raise Conflict(
            f"CLUSTER_REGISTRATION_TOKEN is the secret of the join token {token.name};"
            " give the environment one of its own."
        )
    # What *we* revoked comes back with its value; what an operator revoked stays revoked,
    # however often the processes restart.
    if token.revoked_by == ACTOR:
        JoinToken.objects.filter(pk=token.pk).update(revoked_at=None, revoked_by="")
        events.record("token.restored", actor=ACTOR, now=now, subject=token.name)
        token.refresh_from_db()
    return token


def _new(secret: str, now: datetime) -> JoinToken:
    number = JoinToken.objects.filter(from_environment=True).count() + 1
    token = JoinToken.objects.create(
        name=f"environment {number}",
        digest=jointokens.digest(secret),
        prefix="",  # chosen by a person, hence perhaps short: not one character of it
        created_at=now,
        created_by=ACTOR,
        from_environment=True,
    )
    events.record("token.issued", actor=ACTOR, now=now, subject=token.name)
    return token


def _approve_by_itself(token: JoinToken, auto_approve: bool, now: datetime) -> None:
    if token.auto_approve == auto_approve:
        return
    JoinToken.objects.filter(pk=token.pk).update(auto_approve=auto_approve)
    token.refresh_from_db()
    events.record(
        "token.changed",
        actor=ACTOR,
        now=now,
        subject=token.name,
        before={"auto_approve": not auto_approve},
        after={"auto_approve": auto_approve},
    )


def _inherit_nodes(token: JoinToken, now: datetime) -> None:
    strays = BackendNode.objects.filter(join_token__from_environment=True).exclude(join_token=token)
    # In id order, as heartbeats lock them.
    ids = list(
        strays.order_by("pk")
        .select_for_update(no_key=True, of=("self",))
        .values_list("pk", flat=True)
    )
    if ids:
        BackendNode.objects.filter(pk__in=ids).update(join_token=token)
        events.record(
            "token.inherited", actor=ACTOR, now=now, subject=token.name, after={"nodes": len(ids)}
        )
