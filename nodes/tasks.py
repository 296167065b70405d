"""What ticks for nodes."""

from celery import shared_task
from django.utils import timezone

from nodes.services import sweeping


@shared_task(name="nodes.sweep_stale", ignore_result=True)
def sweep_stale() -> None:
    """Notice who fell silent and who came back."""
    sweeping.sweep(now=timezone.now())
