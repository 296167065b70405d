"""What ticks for orders, and what waits for a node."""

from celery import shared_task
from django.utils import timezone

from backendops.services import catalog


@shared_task(name="backendops.dispatch", ignore_result=True)
def dispatch() -> None:
    """Hand out what is due."""


@shared_task(name="backendops.send_cancel", ignore_result=True)
def send_cancel(op_id: int) -> None:
    """Ask a node to stop what it is doing."""


@shared_task(name="backendops.check_upgrades", ignore_result=True)
def check_upgrades() -> None:
    """Read what the galleries have now."""
    catalog.check(now=timezone.now())
