"""Bells that merge: ring a tick as often as you like, it comes once for all who rang before.

A bell is a row: rung, and not answered yet. Who finds it there has nothing to do, for its tick is
still to begin, and will see what he has committed. A tick that begins takes the row away before it
looks (`clustermgr/ticking.py`), so who rings while it looks puts up a new one and is answered by
another tick. No clock is compared. A message that is lost leaves the row: then the bell is silent
until the tick's own time has come, which is why only what ticks anyway can be rung.
"""

import logging
from datetime import timedelta
from functools import partial

from celery import current_app
from django.conf import settings
from django.db import connection, transaction

log = logging.getLogger(__name__)

# Takes nothing and writes nothing where the row is there; waits where it is just being taken away
RING = "INSERT INTO clustermgr_bell (name) VALUES (%s) ON CONFLICT DO NOTHING"
AT_ONCE = timedelta()


def ring(tick: str, *, after: timedelta = AT_ONCE) -> None:
    """Have `tick` run once this transaction has committed; any number of rings are one run."""
    if tick not in settings.CELERY_BEAT_SCHEDULE:
        raise LookupError(f"{tick} does not tick by itself: a lost bell would be silent for ever")
    transaction.on_commit(partial(_ring, tick, after))


def _ring(tick: str, after: timedelta) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(RING, [tick])
            unanswered = cursor.rowcount == 0
        if not unanswered:
            current_app.send_task(tick, countdown=after.total_seconds() or None)
    except Exception:  # edge: what was committed is committed; a lost bell costs one tick
        log.warning("could not ring", extra={"tick": tick}, exc_info=True)
