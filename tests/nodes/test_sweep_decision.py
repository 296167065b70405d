from dataclasses import replace
from datetime import timedelta

import pytest

from nodes.states import Liveness
from nodes.sweeping import Hold, Memory, Watched
from tests.factories import NOW
from tests.nodes.sweeps import KNOBS, TICKING, ago, fleet, judge, node


def test_a_heartbeat_of_exactly_the_limit_is_still_alive() -> None:
    at_limit, over = node(1, silent=60), node(2, silent=60.001)
    assert judge(at_limit, over).offline == (over,)


@pytest.mark.parametrize("liveness", [Liveness.HEALTHY, Liveness.UNHEALTHY])
def test_whoever_is_silent_goes_offline_even_from_unhealthy(liveness: Liveness) -> None:
    lost = node(silent=90, liveness=liveness)
    assert judge(lost).offline == (lost,)


def test_one_silent_of_ten_is_the_one_declared_offline() -> None:
    nodes = fleet(10, silent=1)
    assert judge(*nodes).offline == (nodes[0],)


def test_six_silent_of_ten_are_our_fault() -> None:
    plan = judge(*fleet(10, silent=6))
    assert plan.offline == ()
    assert plan.waiting == 6
    assert plan.hold_began
    assert plan.memory.hold is not None
    assert "6 of 10 nodes (60%)" in plan.memory.hold.reason


@pytest.mark.parametrize(
    ("size", "silent", "holds"),
    [(20, 11, True), (20, 10, False), (3, 3, True), (3, 2, False), (2, 2, False), (1, 1, False)],
)
def test_the_hold_begins_at_its_share_and_not_below_three(
    size: int, silent: int, holds: bool
) -> None:
    plan = judge(*fleet(size, silent=silent))
    assert (plan.memory.hold is not None) is holds
    assert bool(plan.offline) is not holds


def test_strangers_neither_trigger_the_hold_nor_prevent_it() -> None:
    silent_strangers = [node(100 + n, silent=90, approved=False) for n in range(50)]
    assert judge(*fleet(10, silent=1), *silent_strangers).memory.hold is None
    lively_strangers = [node(100 + n, approved=False) for n in range(50)]
    assert judge(*fleet(10, silent=6), *lively_strangers).memory.hold is not None


def test_strangers_go_offline_without_using_the_members_allowance() -> None:
    strangers = [node(100 + n, silent=900, approved=False) for n in range(50)]
    members = fleet(10, silent=2)
    plan = judge(*strangers, *members)
    assert set(plan.offline) == {*strangers, *members[:2]}
    assert plan.memory.allowance == pytest.approx(1.0)


def test_at_most_a_burst_goes_at_once_and_the_longest_silent_go_first() -> None:
    nodes = [node(n, silent=61 + n if n < 5 else 0) for n in range(12)]
    plan = judge(*nodes)
    assert plan.offline == (nodes[4], nodes[3], nodes[2])
    assert plan.waiting == 2
    assert plan.memory.allowance == 0


def test_the_allowance_grows_with_time_and_not_above_the_burst() -> None:
    spent = replace(TICKING, allowance=0.0)
    assert judge(memory=spent).memory.allowance == pytest.approx(1.5)
    rich = replace(TICKING, allowance=2.9)
    assert judge(memory=rich).memory.allowance == 3.0


def test_a_clock_that_went_backwards_earns_nothing() -> None:
    ahead = replace(TICKING, last_sweep_at=NOW + timedelta(hours=1), allowance=0.0)
    plan = judge(*fleet(10, silent=1), memory=ahead)
    assert plan.offline == ()
    assert plan.memory.last_sweep_at == NOW


def test_a_left_node_stays_away_however_fresh_its_last_heartbeat_is() -> None:
    gone = node(liveness=Liveness.OFFLINE, left=True, liveness_changed_at=ago(5))
    assert judge(gone).recovered == ()


def test_a_heartbeat_from_before_the_verdict_does_not_undo_it() -> None:
    early = node(silent=20, liveness=Liveness.OFFLINE, liveness_changed_at=ago(10))
    assert judge(early).recovered == ()


@pytest.mark.parametrize("liveness", [Liveness.UNHEALTHY, Liveness.OFFLINE])
def test_a_heartbeat_after_the_verdict_brings_a_node_back(liveness: Liveness) -> None:
    back = node(silent=5, liveness=liveness, liveness_changed_at=ago(10))
    assert judge(back).recovered == (back,)


def test_a_heartbeat_after_the_verdict_that_is_old_by_now_brings_nobody_back() -> None:
    late = node(silent=70, liveness=Liveness.OFFLINE, liveness_changed_at=ago(100))
    assert judge(late).recovered == ()


def test_the_first_sweep_gives_everybody_time_to_beat() -> None:
    first = Memory(last_sweep_at=None, hold=None, allowance=3.0, fence=0)
    plan = judge(*fleet(10, silent=1), memory=first)
    assert plan.offline == ()
    assert plan.memory.hold == Hold(
        since=NOW,
        until=NOW + KNOBS.stale_after,
        reason="This is the first sweep: nobody is declared offline before 12:01:00 UTC, "
        "so that workers can beat.",
    )


def test_an_empty_cluster_has_nothing_to_hold() -> None:
    first = Memory(last_sweep_at=None, hold=None, allowance=3.0, fence=0)
    assert judge(memory=first).memory.hold is None


@pytest.mark.parametrize(("gap", "holds"), [(45, False), (46, True), (7200, True)])
def test_after_an_absence_of_ours_nobody_is_judged(gap: float, holds: bool) -> None:
    plan = judge(*fleet(10, silent=1), memory=replace(TICKING, last_sweep_at=ago(gap)))
    assert (plan.memory.hold is not None) is holds
    if plan.memory.hold:
        assert plan.memory.hold.until == NOW + KNOBS.stale_after
        assert f"{gap} s" in plan.memory.hold.reason


def test_a_hold_after_an_absence_ends_by_the_clock() -> None:
    hold = Hold(since=ago(60), until=NOW, reason="away")
    plan = judge(*fleet(10, silent=1), memory=replace(TICKING, hold=hold))
    assert plan.hold_ended
    assert len(plan.offline) == 1


def test_a_hold_after_an_absence_becomes_a_new_hold_if_most_stay_silent() -> None:
    hold = Hold(since=ago(60), until=NOW, reason="away")
    plan = judge(*fleet(10, silent=8), memory=replace(TICKING, hold=hold))
    assert plan.hold_began
    assert plan.memory.hold is not None
    assert (plan.memory.hold.since, plan.memory.hold.until) == (ago(60), None)


def test_a_mass_silence_that_goes_on_is_no_news() -> None:
    hold = Hold(since=ago(300), until=None, reason="7 of 10")
    plan = judge(*fleet(10, silent=6), memory=replace(TICKING, hold=hold))
    assert not plan.hold_began
    assert not plan.hold_ended
    assert plan.memory.hold is not None
    assert plan.memory.hold.since == ago(300)


def test_a_hold_ends_by_itself_when_enough_are_heard_again() -> None:
    hold = Hold(since=ago(300), until=None, reason="6 of 10")
    plan = judge(*fleet(10, silent=5), memory=replace(TICKING, hold=hold))
    assert plan.hold_ended
    assert len(plan.offline) == 3


def test_while_holding_nodes_still_come_back() -> None:
    back = node(99, silent=5, liveness=Liveness.OFFLINE, liveness_changed_at=ago(10))
    plan = judge(*fleet(10, silent=9), back)
    assert plan.memory.hold is not None
    assert plan.recovered == (back,)


def test_the_third_return_within_ten_minutes_is_quarantined() -> None:
    def returning(*recoveries: float) -> Watched:
        return node(
            liveness=Liveness.OFFLINE,
            liveness_changed_at=ago(10),
            recoveries=tuple(map(ago, recoveries)),
        )

    assert judge(returning(200)).quarantined == ()
    assert judge(returning(200, 700)).quarantined == ()
    flapping = returning(200, 400)
    assert judge(flapping).quarantined == judge(flapping).recovered == (flapping,)


def test_an_unanswered_command_is_no_flap() -> None:
    shy = node(
        liveness=Liveness.UNHEALTHY,
        liveness_changed_at=ago(10),
        recoveries=(ago(100), ago(200), ago(300)),
    )
    assert judge(shy).quarantined == ()


def test_a_quarantine_passes_unless_the_node_flaps_again() -> None:
    served = node(1, quarantined_until=NOW)
    serving = node(2, quarantined_until=NOW + timedelta(seconds=1))
    again = node(3, quarantined_until=NOW, liveness=Liveness.OFFLINE, liveness_changed_at=ago(10))
    plan = judge(served, serving, again)
    assert plan.released == (served,)
    assert plan.quarantined == (again,)
