"""What ticks for models, and what waits for a node."""

from uuid import UUID

from celery import shared_task
from django.utils import timezone

from clustermgr.lib.bus import default_bus
from nodes.gateway import NodeGateway
from scheduling.services import (
    leasing,
    loading,
    observing,
    reaping,
    reconciling,
    retention,
    ringing,
    strays,
    tallying,
    unloading,
)
from scheduling.services.desk import default_desk
from scheduling.services.loading import Hands


@shared_task(name="scheduling.reconcile", ignore_result=True)
def reconcile() -> None:
    """Bring what runs closer to what should; a bell that finds somebody at it rings again."""
    if reconciling.tick(now=timezone.now()) is None:
        ringing.reconcile_later()


@shared_task(name="scheduling.give_up", ignore_result=True)
def give_up(loads: list[tuple[int, str]]) -> None:
    """End loads that a plan has no use for."""
    reconciling.give_up(loads, now=timezone.now())


@shared_task(name="scheduling.send_out", ignore_result=True)
def send_out() -> None:
    """Ring for what a plan has just written down."""
    reaping.send_out(now=timezone.now())


@shared_task(name="scheduling.run_job", ignore_result=True)
def run_job(job_id: int) -> None:
    """Bring one replica up."""
    desk = default_desk(clock=timezone.now)
    hands = Hands(gateway=NodeGateway(default_bus()), desk=desk, clock=timezone.now)
    loading.run(job_id, hands=hands)


@shared_task(name="scheduling.cancel_install", ignore_result=True)
def cancel_install(node_id: str, op_id: str) -> None:
    """Spare a node a download that nobody waits for."""
    loading.cancel_install(UUID(node_id), op_id=op_id, gateway=NodeGateway(default_bus()))


@shared_task(name="scheduling.stop_replica", ignore_result=True)
def stop_replica(replica_id: str) -> None:
    """Stop exactly one process."""
    gateway = NodeGateway(default_bus())
    unloading.stop(UUID(replica_id), gateway=gateway, clock=timezone.now)


@shared_task(name="scheduling.reap_jobs", ignore_result=True)
def reap_jobs() -> None:
    """Find what nobody works on any more, and ring for what is due."""
    reaping.reap(now=timezone.now())


@shared_task(name="scheduling.tidy", ignore_result=True)
def tidy() -> None:
    """Shorten the record to what the operator wants kept."""
    tallying.forget_old(now=timezone.now())
    retention.prune(now=timezone.now())


@shared_task(name="scheduling.observe", ignore_result=True)
def observe() -> None:
    """Ask workers what they really run."""
    observing.observe(gateway=NodeGateway(default_bus()), clock=timezone.now)


@shared_task(name="scheduling.look_at_node", ignore_result=True)
def look_at_node(node_id: str) -> None:
    """Ask one worker what it really runs: somebody could not reach what it should run."""
    gateway = NodeGateway(default_bus())
    observing.observe(gateway=gateway, clock=timezone.now, only=UUID(node_id))


@shared_task(name="scheduling.settle_stray", ignore_result=True)
def settle_stray(stray_id: int) -> None:
    """Take in or stop a process that belongs to nobody."""
    strays.settle(stray_id, gateway=NodeGateway(default_bus()), clock=timezone.now)


@shared_task(name="scheduling.sweep_leases", ignore_result=True)
def sweep_leases() -> None:
    """Forget callers that never came back, and see to it that counts are right."""
    leasing.sweep(now=timezone.now())
    leasing.recount()
