from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodes.states import Liveness
from nodes.sweeping import Hold, Memory, SweepPlan, View, Watched, decide
from tests.factories import NOW
from tests.nodes.sweeps import KNOBS, ago, view

MOMENTS = st.integers(min_value=0, max_value=1200).map(ago)
NODES = st.lists(
    st.builds(
        Watched,
        id=st.uuids(),
        name=st.just("node"),
        liveness=st.sampled_from(Liveness),
        approved=st.booleans() | st.just(True),
        left=st.booleans(),
        last_heartbeat=MOMENTS | st.integers(min_value=55, max_value=65).map(ago),
        liveness_changed_at=MOMENTS,
        recoveries=st.lists(MOMENTS, max_size=4).map(tuple),
        quarantined_until=st.none() | MOMENTS | st.just(NOW + timedelta(minutes=5)),
    ),
    max_size=20,
    unique_by=lambda one: one.id,
)
HOLDS = st.builds(
    Hold,
    since=MOMENTS,
    until=st.none() | MOMENTS | st.just(NOW + timedelta(seconds=30)),
    reason=st.just("because"),
)
MEMORIES = st.builds(
    Memory,
    last_sweep_at=st.none() | MOMENTS | st.just(ago(15)),
    hold=st.none() | HOLDS,
    allowance=st.floats(min_value=0, max_value=3),
    fence=st.integers(min_value=0, max_value=9),
)
VIEWS = st.builds(lambda nodes, memory: view(*nodes, memory=memory), NODES, MEMORIES)


def after(before: View, plan: SweepPlan) -> View:
    """The world as the plan leaves it."""

    def changed(one: Watched) -> Watched:
        if one in plan.offline:
            one = replace(one, liveness=Liveness.OFFLINE, liveness_changed_at=NOW)
        elif one in plan.recovered:
            back = one.liveness == Liveness.OFFLINE
            until = NOW + KNOBS.quarantine_for if one in plan.quarantined else None
            one = replace(
                one,
                liveness=Liveness.HEALTHY,
                liveness_changed_at=NOW,
                recoveries=(NOW, *one.recoveries) if back else one.recoveries,
                quarantined_until=until or one.quarantined_until,
            )
        return one

    def released(old: Watched, new: Watched) -> Watched:
        return replace(new, quarantined_until=None) if old in plan.released else new

    nodes = [released(one, changed(one)) for one in before.nodes]
    return view(*nodes, memory=plan.memory)


@given(VIEWS)
def test_while_holding_nobody_is_ever_declared_offline(seen: View) -> None:
    plan = decide(seen, now=NOW, knobs=KNOBS)
    assert not (plan.memory.hold and plan.offline)


@given(VIEWS)
def test_the_allowance_is_never_exceeded_and_never_negative(seen: View) -> None:
    plan = decide(seen, now=NOW, knobs=KNOBS)
    assert sum(one.approved for one in plan.offline) <= KNOBS.offline_burst
    assert -1e-6 <= plan.memory.allowance <= KNOBS.offline_burst


@given(VIEWS)
def test_nobody_who_beats_is_declared_offline_and_nobody_silent_is_brought_back(
    seen: View,
) -> None:
    plan = decide(seen, now=NOW, knobs=KNOBS)
    assert all(NOW - one.last_heartbeat > KNOBS.stale_after for one in plan.offline)
    assert all(NOW - one.last_heartbeat <= KNOBS.stale_after for one in plan.recovered)
    assert not any(one.left for one in plan.recovered)


@given(VIEWS)
def test_a_second_look_at_the_same_moment_changes_nothing_more(seen: View) -> None:
    first = decide(seen, now=NOW, knobs=KNOBS)
    second = decide(after(seen, first), now=NOW, knobs=KNOBS)
    assert second.touched == frozenset()
    assert not second.hold_began
    assert not second.hold_ended
    assert second.memory == replace(first.memory, fence=first.memory.fence + 1)


@given(VIEWS)
def test_leaving_out_the_nodes_that_are_well_changes_no_decision(seen: View) -> None:
    ill = tuple(
        one
        for one in seen.nodes
        if one.liveness != Liveness.HEALTHY
        or NOW - one.last_heartbeat > KNOBS.stale_after
        or one.quarantined_until
    )
    few = replace(seen, nodes=ill)
    assert decide(few, now=NOW, knobs=KNOBS) == decide(seen, now=NOW, knobs=KNOBS)
