"""What ticks for orders, and what waits for a node."""

from uuid import UUID

from celery import shared_task
from django.utils import timezone

from backendops.services import (
    cancelling,
    catalog,
    dispatching,
    executing,
    inventory,
    reaping,
    retention,
    stopping,
)
from backendops.services.desk import default_desk
from clustermgr.lib.bus import default_bus
from nodes.gateway import NodeGateway


@shared_task(name="backendops.dispatch", ignore_result=True)
def dispatch() -> None:
    """Hand out what is due."""
    dispatching.dispatch(now=timezone.now())


@shared_task(name="backendops.drain", ignore_result=True)
def drain() -> None:
    """Cancel what will never be carried out; hand out what is due."""
    cancelling.cancel_pointless(now=timezone.now())
    dispatching.dispatch(now=timezone.now())


@shared_task(name="backendops.reap", ignore_result=True)
def reap() -> None:
    """Find what nobody works on any more, and what is in doubt."""
    reaping.reap(now=timezone.now())


@shared_task(name="backendops.tidy", ignore_result=True)
def tidy() -> None:
    """Shorten the record to what the operator wants kept."""
    retention.prune(now=timezone.now())


@shared_task(name="backendops.apply_op", ignore_result=True)
def apply_op(op_id: int, fence: int) -> None:
    """Carry out one op on its node; then there is room for the next."""
    gateway, desk = NodeGateway(default_bus()), default_desk(clock=timezone.now)
    executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=timezone.now)
    dispatching.dispatch(now=timezone.now())


@shared_task(name="backendops.check_ops", ignore_result=True)
def check_ops() -> None:
    """Ask nodes about what is in doubt."""
    reaping.check_due(gateway=NodeGateway(default_bus()), now=timezone.now())


@shared_task(name="backendops.look_at_node", ignore_result=True)
def look_at_node(node_id: str) -> None:
    """Ask one node now, because an operator wants to know."""
    reaping.look([UUID(node_id)], gateway=NodeGateway(default_bus()), now=timezone.now())


@shared_task(name="backendops.refresh_inventory", ignore_result=True)
def refresh_inventory() -> None:
    """Ask everybody what is installed."""
    reaping.look(inventory.askable(), gateway=NodeGateway(default_bus()), now=timezone.now())


@shared_task(name="backendops.send_cancel", ignore_result=True)
def send_cancel(op_id: int) -> None:
    """Ask a node to stop what it is at."""
    stopping.send_cancel(op_id, gateway=NodeGateway(default_bus()), now=timezone.now())


@shared_task(name="backendops.check_upgrades", ignore_result=True)
def check_upgrades() -> None:
    """Read what the galleries have now, because somebody asks."""
    catalog.check(now=timezone.now())


@shared_task(name="backendops.read_galleries", ignore_result=True)
def read_galleries() -> None:
    """Read what was not read for long."""
    catalog.check_due(now=timezone.now())
