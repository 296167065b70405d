"""Hands out what is due: decided for the whole fleet in one statement, under one lock."""

import logging
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction

from backendops import statements
from clustermgr.lib.locks import LockKey, next_in_line
from clustermgr.lib.queue import after_commit

log = logging.getLogger(__name__)


@transaction.atomic
def dispatch(*, now: datetime) -> int:
    """Claim what is due and has room, and ring for each; the number claimed.

    The lock is for the bounds: two at a time would both see the last free place. A thousand ops
    that end together need one more run, not a thousand. A doorbell that is lost costs a lease:
    the op was not sent, so it is simply due again.
    """
    with next_in_line(LockKey.DISPATCH_OPS, LockKey.DISPATCH_OPS_LINE) as our_turn:
        return _hand_out(now=now) if our_turn else 0


def _hand_out(*, now: datetime) -> int:
    cluster = settings.CLUSTER
    with connection.cursor() as cursor:
        cursor.execute(
            statements.DISPATCH,
            {
                "now": now,
                "until": now + cluster.op_lease,
                "per_node": cluster.ops_per_node,
                "at_once": cluster.ops_at_once,
            },
        )
        claims = cursor.fetchall()
    for op_id, fence in claims:
        after_commit("backendops.apply_op", op_id, fence)
    if claims:
        log.info("ops dispatched", extra={"ops": len(claims)})
    return len(claims)
