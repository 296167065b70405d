"""How far a load is, and how long it will take: only where that is known."""

from datetime import timedelta

from scheduling.models import LoadJob
from scheduling.states import JobState

LONGEST = timedelta(days=2)  # beyond it, a rate says nothing
LOCALAI_STARTS = timedelta(seconds=1)


def eta(job: LoadJob) -> timedelta | None:
    """What is left of the bytes at the pace so far; None rather than a guess."""
    if job.state != JobState.STAGING or job.progress_at is None:
        return None
    spent = job.progress_at - job.changed_at  # since its bytes move
    if spent < LOCALAI_STARTS or not 0 < job.current_bytes < job.total_bytes:
        return None
    left = spent * ((job.total_bytes - job.current_bytes) / job.current_bytes)
    return left if left < LONGEST else None


def percentage(job: LoadJob) -> float:
    return 100.0 if job.state == JobState.LOADED else min(max(job.percentage, 0.0), 100.0)
