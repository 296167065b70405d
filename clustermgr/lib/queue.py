"""Ring the doorbell after the row is safe."""

import logging
from functools import partial
from typing import Any

from celery import current_app
from django.db import transaction

log = logging.getLogger(__name__)


def after_commit(task: str, *args: Any) -> None:
    """Queue `task` by name once the surrounding transaction has committed."""
    transaction.on_commit(partial(_ring, task, args))


def _ring(task: str, args: tuple[Any, ...]) -> None:
    try:
        current_app.send_task(task, args)
    except Exception:  # edge: the row is committed; a lost doorbell costs one tick, not the work
        log.warning("could not queue task", extra={"task": task}, exc_info=True)
