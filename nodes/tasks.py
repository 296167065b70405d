"""What ticks for nodes, and what waits for one."""

from datetime import datetime
from functools import partial
from uuid import UUID

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from clustermgr.lib.bus import default_bus
from clustermgr.lib.bus.accounts import account_server
from nodes.gateway import NodeGateway
from nodes.services import confirming, credentials, draining, refusals, revocation, sweeping


@shared_task(name="nodes.sweep_stale", ignore_result=True)
def sweep_stale() -> None:
    """Notice who fell silent and who came back."""
    sweeping.sweep(now=timezone.now())


@shared_task(name="nodes.finish_drains", ignore_result=True)
def finish_drains() -> None:
    """Notice who is empty, or out of time, and whose worker is to exit then."""
    now = timezone.now()
    draining.finish_drains(now=now)
    draining.dismiss_workers(now=now)


@shared_task(name="nodes.tidy", ignore_result=True)
def tidy() -> None:
    """Ask again about replicas in doubt; forget counters nobody reads."""
    confirming.ask_again(now=timezone.now())
    refusals.forget_old(now=timezone.now())
    credentials.forget_old(now=timezone.now())


@shared_task(name="nodes.confirm_replicas", ignore_result=True)
def confirm_replicas(node_id: str) -> None:
    """Ask one worker what it runs."""
    ask = NodeGateway(default_bus()).running_models
    confirming.confirm(UUID(node_id), ask=ask, now=timezone.now())


@shared_task(name="nodes.stop_worker", ignore_result=True)
def stop_worker(node_id: str, told_at: str) -> None:
    """Tell one worker to exit."""
    tell = NodeGateway(default_bus()).stop_node
    draining.dismiss(UUID(node_id), told_at=datetime.fromisoformat(told_at), tell=tell)


@shared_task(name="nodes.push_revocations", ignore_result=True)
def push_revocations() -> None:
    """Cut off whoever was revoked: rung at once, and by the clock for what was missed."""
    revocation.push(partial(account_server, settings.CLUSTER), now=timezone.now())
