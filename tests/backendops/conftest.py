from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from backendops.services import dispatching, executing
from backendops.services.desk import Desk
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from tests.factories import NOW

BRIEFLY = timedelta(seconds=2)  # enough to hear an order on a busy machine
hasty = pytest.mark.parametrize("patience", [BRIEFLY])


class Clock:
    """The time of a test: it passes when the test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **duration: float) -> datetime:
        self.now += timedelta(**duration)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience() -> timedelta:
    """How long a node may take to answer; tests of silence ask for BRIEFLY."""
    return timedelta(seconds=30)


@pytest.fixture
def gateway(patience: timedelta) -> Iterator[NodeGateway]:
    bus = NatsBus(settings.CLUSTER)
    yield NodeGateway(
        bus, cluster=replace(settings.CLUSTER, install_timeout=patience, upgrade_timeout=patience)
    )
    bus.close()


@pytest.fixture
def work(
    queued: list[tuple[Any, ...]], gateway: NodeGateway, clock: Clock
) -> Callable[[], list[int]]:
    """Dispatch what is due and carry out what was rung for; the ops that were."""
    desk = Desk(clock=clock)

    def run() -> list[int]:
        queued.clear()
        dispatching.dispatch(now=clock())
        rung = [args for name, *args in queued if name == "backendops.apply_op"]
        for op_id, fence in rung:
            executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=clock)
        return [op_id for op_id, _ in rung]

    return run


@pytest.fixture
def turn(settings: Any) -> Callable[..., None]:
    """Turn knobs of the cluster for one test."""

    def knobs(**changes: Any) -> None:
        settings.CLUSTER = replace(settings.CLUSTER, **changes)

    return knobs
