"""What hypothesis may make up about clusters."""

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from nodes.builds import Offer
from nodes.states import Liveness, NodeType, ReplicaState, TaintEffect
from nodes.taints import Taint
from scheduling.planning.views import (
    ClusterView,
    JobView,
    ModelView,
    NodeView,
    ReplicaView,
    RuleView,
)
from scheduling.states import JobState, Strategy
from tests.planning.made import GIB, NOW, ident, job, model, node, replica

MODELS = ("llama", "qwen", "phi", "bert")
SELECTORS = ("", "", "", "", "tier=fast", "tier in (fast,slow)", "!spot", "no=where", "tier=(")
SIZES = (8 * GIB, 8 * GIB, 2 * GIB, 16 * GIB, None)
AGES = (timedelta(hours=1), timedelta(hours=1), timedelta(seconds=10), timedelta(0))
moments = st.sampled_from([(NOW - age).timestamp() for age in AGES])


def mostly(usual: Any, *others: Any) -> Any:
    """One of the others now and then: where everything is wrong at once, nothing is decided."""
    return st.sampled_from([usual] * 9 + list(others))


rarely = mostly(None, NOW)
# Made once: a strategy costs more to build than to draw from.
NODES = st.fixed_dictionaries(
    {
        "node_type": mostly(NodeType.BACKEND, NodeType.AGENT),
        "approved_at": mostly(NOW, None),
        "liveness": mostly(Liveness.HEALTHY, Liveness.OFFLINE),
        "drain_requested_at": rarely,
        "cordoned_at": rarely,
        "quarantined_until": rarely,
        "slots": st.integers(1, 3),
        "total_vram": st.sampled_from([24 * GIB, 24 * GIB, 80 * GIB, 8 * GIB, 0]),
        "total_disk": st.sampled_from([0, 100 * GIB]),
        "available_disk": st.sampled_from([90 * GIB, 90 * GIB, 5 * GIB, 0]),
        "total_ram": st.sampled_from([0, 64 * GIB]),
        "available_ram": st.sampled_from([4 * GIB, 32 * GIB]),
        "capability": mostly("nvidia-cuda-12", "amd", ""),
        "labels": st.sampled_from([{}, {"tier": "fast"}, {"tier": "slow"}, {"spot": "1"}]),
        "taints": mostly((), *((Taint(key="spot", effect=one),) for one in TaintEffect)),
    }
)
FREE = st.sampled_from([0, 0, 1, 4])  # quarters of a node's memory
BUDGET = mostly(0, 4 * GIB)
RULES = st.fixed_dictionaries(
    {
        "selector": st.sampled_from(SELECTORS),
        "tolerations": mostly([], [{"key": "spot"}], "broken"),
        "pinned": mostly(False, True),
        "priority": st.integers(-1, 1),
        "strategy": st.sampled_from(Strategy),
        "unsatisfiable_since": st.sampled_from([None, NOW, NOW - timedelta(minutes=3)]),
        "unsatisfiable_until": mostly(None, NOW + timedelta(minutes=1)),
    }
)
LEAST = st.sampled_from([0, 1, 1, 2, 4])
MORE = st.sampled_from([None, 0, 0, 1, 2])  # than the least; None: any number
seldom, often = mostly(False, True), mostly(True, False)
MODEL = st.fixed_dictionaries(
    {
        "revision": mostly("r1", "r2", ""),
        "size_bytes": st.sampled_from(SIZES),
        "vram_bytes": st.sampled_from(SIZES),
        "group": st.sampled_from(["", "big"]),
        "retry_at": mostly(None, NOW + timedelta(seconds=30)),
        "rolling": mostly(0, 1, 2, 3, 4),
    }
)
REPLICAS = st.fixed_dictionaries(
    {
        "state": mostly(ReplicaState.LOADED, *ReplicaState),
        "in_flight": st.sampled_from([0, 0, 1, 3]),
        "used": moments,
        "revision": mostly("r1", "r2", ""),
        "suspect_since": rarely,
        "outdated_at": rarely,
        "withdrawn_at": rarely,
    }
)
JOBS = st.fixed_dictionaries(
    {
        "state": st.sampled_from([JobState.PENDING, JobState.LOADING, JobState.LOADED]),
        "reserved_vram": st.sampled_from([0, 2 * GIB]),
        "reservation_ended_at": rarely,
    }
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeView:
    facts = draw(NODES)
    total = facts["total_vram"]
    free, budget = total * draw(FREE) // 4, min(total, draw(BUDGET))
    return node(name, available_vram=free, vram_budget=budget, **facts)


@st.composite
def rules(draw: st.DrawFn) -> RuleView:
    least, more = draw(LEAST), draw(MORE)
    if draw(seldom):
        return RuleView(min_replicas=0, max_replicas=0, spread_all=True, **draw(RULES))
    most = 0 if more is None else least + more
    return RuleView(min_replicas=least, max_replicas=most, spread_all=False, **draw(RULES))


@st.composite
def models(draw: st.DrawFn, name: str) -> ModelView:
    return model(name, rule=draw(rules()) if draw(often) else None, **draw(MODEL))


@st.composite
def replicas(draw: st.DrawFn, on: NodeView, name: str, slot: int) -> ReplicaView:
    return replica(on, name, slot, **draw(REPLICAS))


@cache
def slots_of(count: int) -> Any:
    """Some of a node's slots; a limit that was lowered leaves some above it."""
    every = [(name, slot) for name in MODELS for slot in range(count + 1)]
    return st.lists(st.sampled_from(every), max_size=5, unique=True)


@st.composite
def offers(draw: st.DrawFn, fleet: list[NodeView]) -> dict[str, Offer]:
    """Now and then the one backend of all models is not for every node."""
    if draw(often):
        return {}
    some = st.frozensets(st.sampled_from([one.id for one in fleet]))
    builds = st.sampled_from([frozenset[str](), frozenset({"nvidia"})])
    return {"reference": Offer(installed=draw(some), told=draw(some), builds=draw(builds))}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    fleet = [draw(nodes(f"gpu-{number}")) for number in range(draw(st.integers(1, 5)))]
    rows: list[ReplicaView] = []
    jobs: list[JobView] = []
    for one in fleet:
        for name, slot in draw(slots_of(one.slots)):
            row = draw(replicas(one, name, slot))
            rows.append(row)
            if row.state in (ReplicaState.STAGING, ReplicaState.LOADING):
                more = draw(JOBS)
                jobs.append(job(one, name, slot, id=len(jobs), revision=row.revision, **more))
    known = [draw(models(name)) for name in MODELS if draw(often)]
    return ClusterView(
        nodes=tuple(fleet),
        models=tuple(known),
        replicas=tuple(rows),
        jobs=tuple(jobs),
        offers=draw(offers(fleet)),
    )


def shuffled(view: ClusterView, seed: Any) -> ClusterView:
    """The same cluster, its rows in another order."""

    def mixed(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(rows, key=lambda row: ident(seed, repr(row))))

    return replace(
        view,
        nodes=mixed(view.nodes),
        models=mixed(view.models),
        replicas=mixed(view.replicas),
        jobs=mixed(view.jobs),
    )
