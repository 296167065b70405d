"""What ticks for models, and what waits for a node."""

from celery import shared_task
from django.utils import timezone

from scheduling.services import reconciling


@shared_task(name="scheduling.reconcile", ignore_result=True)
def reconcile() -> None:
    """Bring what runs closer to what should."""
    reconciling.tick(now=timezone.now())


@shared_task(name="scheduling.run_job", ignore_result=True)
def run_job(job_id: int) -> None:
    """Load one replica."""


@shared_task(name="scheduling.stop_replica", ignore_result=True)
def stop_replica(replica_id: str) -> None:
    """Stop exactly one process."""
