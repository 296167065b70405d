"""Bookkeeping around every task: its request id, its figures, and when each tick last ran."""

import time
from datetime import UTC, datetime
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun
from django.conf import settings
from django.db import connection

from clustermgr.lib.context import accept, request_id
from clustermgr.metrics import TASK_SECONDS

HEADER = "clustermgr_request_id"
_started: dict[str, float] = {}

# One statement each: a tick must not cost more to record than to run. Who begins answers the bell,
# and this is committed before he looks: see clustermgr/lib/bells.py.
BEGAN = """
    WITH answered AS (DELETE FROM clustermgr_bell WHERE name = %(name)s)
    INSERT INTO clustermgr_tick (name, started_at, runs, failures, last_error)
    VALUES (%(name)s, %(now)s, 1, 0, '')
    ON CONFLICT (name) DO UPDATE
       SET started_at = EXCLUDED.started_at, runs = clustermgr_tick.runs + 1
"""
ENDED = """
    UPDATE clustermgr_tick
       SET finished_at = %(now)s, failures = failures + (%(error)s <> '')::int,
           last_error = %(error)s
     WHERE name = %(name)s
"""


@before_task_publish.connect
def send_request_id(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """A task belongs to the click that caused it."""
    if headers is not None and (current := request_id.get()):
        headers[HEADER] = current


@task_prerun.connect
def begin(task_id: str, task: Any, **_: Any) -> None:
    request_id.set(accept(getattr(task.request, HEADER, None) or ""))
    _started[task_id] = time.monotonic()
    if task.name in settings.CELERY_BEAT_SCHEDULE:
        _execute(BEGAN, {"name": task.name, "now": datetime.now(UTC)})


@task_postrun.connect
def end(task_id: str, task: Any, state: str, retval: Any = None, **_: Any) -> None:
    seconds = time.monotonic() - _started.pop(task_id, time.monotonic())
    TASK_SECONDS.labels(task=task.name, outcome=state.lower()).observe(seconds)
    if task.name in settings.CELERY_BEAT_SCHEDULE:
        error = f"{type(retval).__name__}: {retval}" if isinstance(retval, BaseException) else ""
        _execute(ENDED, {"name": task.name, "now": datetime.now(UTC), "error": error})
    request_id.set("")


def _execute(statement: str, parameters: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
