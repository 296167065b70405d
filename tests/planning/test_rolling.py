from typing import Any

import pytest

from nodes.states import ReplicaState
from scheduling.planning.plans import Plan, Rolled
from scheduling.planning.views import ModelView, ReplicaView, RuleView
from scheduling.states import Cause
from tests.planning.made import GIB, NOW, cluster, job, model, node, plan, replica, wanted

OLD, NEW = "r0", "r1"
RULE = wanted(2)


def edited(goal: int = 2, rule: RuleView | None = RULE, **changes: Any) -> ModelView:
    return model(rule=rule, revision=NEW, rolling=goal, **changes)


def old(name: str, **changes: Any) -> ReplicaView:
    return replica(node(name), revision=OLD, **changes)


def gone(done: Plan) -> set[str]:
    return {one.node_name for one in (*done.unload, *done.retire)}


def test_one_more_comes_up_beside_the_old_ones_and_nobody_leaves() -> None:
    rows = [old("a"), old("b")]
    done = plan(cluster(node("a"), node("b"), node("c"), models=[edited()], replicas=rows))
    assert [(one.node_name, one.cause) for one in done.place] == [("c", Cause.REPLACE)]
    assert (done.unload, done.retire, done.starved) == ((), (), ())


def test_a_new_one_may_share_a_node_that_has_a_slot() -> None:
    two = node("a", slots=2)
    rows = [replica(two, revision=OLD)]
    done = plan(cluster(two, models=[edited(goal=1, rule=wanted(1))], replicas=rows))
    assert [(one.node_name, one.index) for one in done.place] == [("a", 1)]
    assert done.unload == ()


def test_while_one_loads_nobody_leaves_and_no_other_is_begun() -> None:
    rows = [old("a"), old("b")]
    on = node("c")
    done = plan(cluster(node("a"), node("b"), on, models=[edited()], replicas=rows, jobs=[job(on)]))
    assert (done.place, done.unload, done.retire) == ((), (), ())


def test_each_that_serves_retires_one_the_idle_first() -> None:
    rows = [old("a", in_flight=1), old("b"), replica(node("c"), revision=NEW)]
    nodes = [node("a"), node("b"), node("c"), node("d")]
    done = plan(cluster(*nodes, models=[edited()], replicas=rows))
    assert [(one.node_name, one.cause) for one in done.unload] == [("b", Cause.REPLACE)]
    assert [one.node_name for one in done.place] == ["d"]


def test_one_that_is_busy_gets_no_new_requests_and_stops_when_it_is_idle() -> None:
    busy = old("a", in_flight=1)
    rows = [busy, replica(node("b"), revision=NEW)]
    models = [edited(goal=1, rule=wanted(1))]
    done = plan(cluster(node("a"), node("b"), models=models, replicas=rows))
    assert [one.replica for one in done.retire] == [busy.id]
    assert done.unload == ()
    rows[0] = busy._replace(outdated_at=NOW)
    assert plan(cluster(node("a"), node("b"), models=models, replicas=rows)).unload == ()
    rows[0] = busy._replace(outdated_at=NOW, in_flight=0)
    done = plan(cluster(node("a"), node("b"), models=models, replicas=rows))
    assert [one.replica for one in done.unload] == [busy.id]


def test_as_many_serve_as_when_it_began_even_above_the_minimum() -> None:
    rows = [old("a"), old("b"), old("c")]
    nodes = [node(name) for name in "abcd"]
    done = plan(cluster(*nodes, models=[edited(goal=3, rule=wanted(1))], replicas=rows))
    assert len(done.place) == 1
    assert gone(done) == set()


def test_four_at_a_time_of_sixteen() -> None:
    nodes = [node(f"n{number:02}", slots=2) for number in range(16)]
    rows = [replica(one, revision=OLD) for one in nodes]
    done = plan(cluster(*nodes, models=[edited(goal=16, rule=wanted(16))], replicas=rows))
    assert len(done.place) == 4


def test_without_a_rule_old_ones_are_replaced_as_well() -> None:
    models = [edited(goal=1, rule=None)]
    done = plan(cluster(node("a"), node("b"), models=models, replicas=[old("a")]))
    assert [one.node_name for one in done.place] == ["b"]


def test_with_no_room_beside_them_one_goes_first_while_others_serve() -> None:
    rows = [old("a"), old("b")]
    done = plan(cluster(node("a"), node("b"), models=[edited()], replicas=rows))
    [leaver] = done.unload
    assert leaver.gap
    assert "1 serves meanwhile" in leaver.reason
    rows = [
        row._replace(state=ReplicaState.UNLOADING) if row.id == leaver.replica else row
        for row in rows
    ]
    again = plan(cluster(node("a"), node("b"), models=[edited()], replicas=rows))
    assert (again.unload, again.place) == ((), ())


def test_one_whose_requests_never_end_does_not_hold_the_others_up_at_the_maximum() -> None:
    lingering = old("a", in_flight=1, outdated_at=NOW)
    rows = [lingering, old("b"), old("c")]
    nodes = [node(name) for name in "abcd"]
    models = [edited(rule=wanted(2, max_replicas=3))]
    done = plan(cluster(*nodes, models=models, replicas=rows))
    assert [one.cause for one in done.unload] == [Cause.REPLACE]
    assert [one.node_name for one in done.place] == ["d"]
    served = {"b", "c"} - gone(done)
    assert len(served) == 1


def test_no_second_one_goes_while_the_first_still_answers_and_that_is_said() -> None:
    rows = [old("a", in_flight=1, outdated_at=NOW), old("b")]
    nodes = [node(name) for name in "abc"]
    models = [edited(rule=wanted(2, max_replicas=2))]
    done = plan(cluster(*nodes, models=models, replicas=rows))
    assert (done.place, gone(done)) == ((), set())
    assert done.held[0].reason == (
        "llama#0 on a makes way for a new replica when its requests are over."
    )


def test_a_full_node_whose_leaver_lingers_lets_another_one_go() -> None:
    rows = [old("a", in_flight=1, outdated_at=NOW), old("b"), old("c")]
    nodes = [node(name) for name in "abc"]
    done = plan(cluster(*nodes, models=[edited()], replicas=rows))
    [leaver] = done.unload
    assert leaver.gap


def test_the_only_one_with_no_room_beside_it_takes_a_gap_and_says_so() -> None:
    models = [edited(goal=1, rule=wanted(1))]
    done = plan(cluster(node("a"), models=models, replicas=[old("a")]))
    [leaver] = done.unload
    assert leaver.gap
    assert "none serves until the new one is loaded" in leaver.reason


def test_where_the_new_revision_could_not_have_the_place_the_old_one_serves_on() -> None:
    small = node("a", total_vram=8 * GIB, available_vram=0)
    models = [edited(goal=1, rule=wanted(1), vram_bytes=16 * GIB)]
    done = plan(cluster(small, models=models, replicas=[replica(small, revision=OLD)]))
    assert gone(done) == set()
    assert done.starved


def test_a_new_revision_that_fails_leaves_the_old_one_serving() -> None:
    failing = edited(failures=1, retry_at=NOW.replace(hour=13), last_error="no such file")
    rows = [old("a"), old("b")]
    done = plan(cluster(node("a"), node("b"), node("c"), models=[failing], replicas=rows))
    assert (done.place, gone(done)) == ((), set())
    assert "no such file" in done.held[0].reason


def test_idle_old_ones_are_not_scaled_down_meanwhile() -> None:
    rows = [old(name, used=NOW.replace(hour=1).timestamp()) for name in "abc"]
    nodes = [node(name) for name in "abcd"]
    done = plan(cluster(*nodes, models=[edited(goal=3, rule=wanted(1))], replicas=rows))
    assert gone(done) == set()


@pytest.mark.parametrize("slots", [1, 2])
def test_a_spread_is_replaced_node_by_node(slots: int) -> None:
    nodes = [node(name, slots=slots) for name in "ab"]
    rows = [replica(one, revision=OLD) for one in nodes]
    models = [edited(rule=RuleView(spread_all=True))]
    done = plan(cluster(*nodes, models=models, replicas=rows))
    assert (len(done.place), len(done.unload)) == ((1, 0) if slots == 2 else (0, 1))
    rows[0] = rows[0]._replace(revision=NEW)
    replaced = [*rows, replica(nodes[1], slot=1, revision=NEW)]
    done = plan(cluster(*nodes, models=models, replicas=replaced))
    assert gone(done) == {"b"}


def test_it_is_over_when_no_old_one_is_left() -> None:
    rows = [replica(node("a"), revision=NEW), replica(node("b"), revision=NEW)]
    done = plan(cluster(node("a"), node("b"), models=[edited()], replicas=rows))
    assert done.rolled == (Rolled(model="llama", revision=NEW),)
    assert (done.place, gone(done)) == ((), set())
