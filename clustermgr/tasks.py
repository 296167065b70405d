"""Proof that time passes: beat, broker and a worker must all be alive for this to run."""

from celery import shared_task


@shared_task(name="clustermgr.pulse", ignore_result=True)
def pulse() -> None:
    """Recorded by the tick bookkeeping around every beat task; /readyz reads its age."""
