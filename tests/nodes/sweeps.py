"""A fleet on paper, for the sweep's decision."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from nodes.states import Liveness
from nodes.sweeping import Knobs, Memory, SweepPlan, View, Watched, decide
from tests.factories import NOW

KNOBS = Knobs(
    stale_after=timedelta(seconds=60),
    every=timedelta(seconds=15),
    hold_fraction=0.55,
    hold_minimum=3,
    offline_per_second=0.1,
    offline_burst=3,
    flap_limit=3,
    flap_window=timedelta(minutes=10),
    quarantine_for=timedelta(minutes=10),
)
TICKING = Memory(last_sweep_at=NOW - KNOBS.every, hold=None, allowance=3.0, fence=7)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def node(number: int = 0, *, silent: float = 0, **changes: object) -> Watched:
    """An approved, healthy node whose last heartbeat is `silent` seconds old."""
    usual = Watched(
        id=UUID(int=number),
        name=f"gpu-{number}",
        liveness=Liveness.HEALTHY,
        approved=True,
        left=False,
        last_heartbeat=ago(silent),
        liveness_changed_at=ago(3600),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def view(*nodes: Watched, memory: Memory = TICKING) -> View:
    online = sum(one.approved and one.liveness != Liveness.OFFLINE for one in nodes)
    return View(nodes=nodes, online=online, memory=memory)


def judge(*nodes: Watched, memory: Memory = TICKING) -> SweepPlan:
    return decide(view(*nodes, memory=memory), now=NOW, knobs=KNOBS)


def fleet(size: int, *, silent: int) -> list[Watched]:
    return [node(number, silent=90 if number < silent else 0) for number in range(size)]
