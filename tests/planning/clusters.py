"""What hypothesis may make up about clusters."""

from dataclasses import replace
from datetime import timedelta
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


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeView:
    total = draw(st.sampled_from([24, 24, 80, 8, 0])) * GIB
    taint = Taint(key="spot", effect=draw(st.sampled_from(TaintEffect)))
    return node(
        name,
        node_type=draw(mostly(NodeType.BACKEND, NodeType.AGENT)),
        approved_at=draw(mostly(NOW, None)),
        liveness=draw(mostly(Liveness.HEALTHY, Liveness.OFFLINE)),
        drain_requested_at=draw(rarely),
        cordoned_at=draw(rarely),
        quarantined_until=draw(rarely),
        slots=draw(st.integers(1, 3)),
        total_vram=total,
        available_vram=draw(st.sampled_from([0, 0, total // 4, total])),
        vram_budget=draw(mostly(0, min(total, 4 * GIB))),
        total_disk=draw(st.sampled_from([0, 100 * GIB])),
        available_disk=draw(st.sampled_from([90 * GIB, 90 * GIB, 5 * GIB, 0])),
        total_ram=draw(st.sampled_from([0, 64 * GIB])),
        available_ram=draw(st.sampled_from([4 * GIB, 32 * GIB])),
        capability=draw(mostly("nvidia-cuda-12", "amd", "")),
        labels=draw(st.sampled_from([{}, {"tier": "fast"}, {"tier": "slow"}, {"spot": "1"}])),
        taints=draw(mostly((), (taint,))),
    )


@st.composite
def rules(draw: st.DrawFn) -> RuleView:
    least = draw(st.sampled_from([0, 1, 1, 2, 4]))
    spread = draw(mostly(False, True))
    return RuleView(
        selector=draw(st.sampled_from(SELECTORS)),
        tolerations=draw(mostly([], [{"key": "spot"}], "broken")),
        min_replicas=0 if spread else least,
        max_replicas=0 if spread else draw(st.sampled_from([0, least, least + 1, least + 2])),
        spread_all=spread,
        pinned=draw(mostly(False, True)),
        priority=draw(st.integers(-1, 1)),
        strategy=draw(st.sampled_from(Strategy)),
        unsatisfiable_since=draw(st.sampled_from([None, NOW, NOW - timedelta(minutes=3)])),
        unsatisfiable_until=draw(mostly(None, NOW + timedelta(minutes=1))),
    )


@st.composite
def models(draw: st.DrawFn, name: str) -> ModelView:
    return model(
        name,
        revision=draw(mostly("r1", "r2", "")),
        size_bytes=draw(st.sampled_from(SIZES)),
        vram_bytes=draw(st.sampled_from(SIZES)),
        group=draw(st.sampled_from(["", "big"])),
        retry_at=draw(mostly(None, NOW + timedelta(seconds=30))),
        rolling=draw(mostly(0, 1, 2, 3, 4)),
        rule=draw(rules()) if draw(mostly(True, False)) else None,
    )


@st.composite
def replicas(draw: st.DrawFn, on: NodeView, name: str, slot: int) -> ReplicaView:
    return replica(
        on,
        name,
        slot,
        state=draw(mostly(ReplicaState.LOADED, *ReplicaState)),
        in_flight=draw(st.sampled_from([0, 0, 1, 3])),
        used=draw(moments),
        revision=draw(mostly("r1", "r2", "")),
        suspect_since=draw(rarely),
        outdated_at=draw(rarely),
        withdrawn_at=draw(rarely),
    )


def slots_of(on: NodeView) -> Any:
    """Some of a node's slots; a limit that was lowered leaves some above it."""
    every = [(name, slot) for name in MODELS for slot in range(on.slots + 1)]
    return st.lists(st.sampled_from(every), max_size=5, unique=True)


@st.composite
def offers(draw: st.DrawFn, fleet: list[NodeView]) -> dict[str, Offer]:
    """Now and then the one backend of all models is not for every node."""
    if draw(mostly(True, False)):
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
        for name, slot in draw(slots_of(one)):
            row = draw(replicas(one, name, slot))
            rows.append(row)
            if row.state in (ReplicaState.STAGING, ReplicaState.LOADING):
                states = [JobState.PENDING, JobState.LOADING, JobState.LOADED]
                jobs.append(
                    job(
                        one,
                        name,
                        slot,
                        id=len(jobs),
                        revision=row.revision,
                        state=draw(st.sampled_from(states)),
                        reserved_vram=draw(st.sampled_from([0, 2 * GIB])),
                        reservation_ended_at=draw(rarely),
                    )
                )
    known = [draw(models(name)) for name in MODELS if draw(mostly(True, False))]
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
