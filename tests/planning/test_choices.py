from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodes.builds import Offer
from nodes.states import Liveness, ReplicaState, TaintEffect
from nodes.taints import Taint
from scheduling.planning.plans import Plan
from scheduling.planning.views import RuleView
from scheduling.states import Cause, Strategy
from tests.planning.made import GIB, NOW, cluster, job, model, node, plan, replica, wanted

LONG_AGO = (NOW - timedelta(hours=1)).timestamp()


def where(done: Plan) -> list[str]:
    return [one.node_name for one in done.place]


def gone(done: Plan) -> list[tuple[str, int, Cause]]:
    return [(one.node_name, one.index, one.cause) for one in done.unload]


def test_what_is_outdated_where_nobody_answers_is_not_let_go_to_make_room() -> None:
    away = node("away", liveness=Liveness.OFFLINE)
    small = node("small", available_vram=0, total_disk=100 * GIB, available_disk=0)
    rows = [replica(away, slot=slot) for slot in range(2)]
    wish = model(revision="r2", vram_bytes=8 * GIB, size_bytes=8 * GIB, rule=wanted(1))
    done = plan(cluster(away, small, models=[wish], replicas=rows))
    assert done.starved
    assert gone(done) == []


@pytest.mark.parametrize("strategy", Strategy)
def test_where_it_failed_lately_is_tried_last(strategy: Strategy) -> None:
    bad, good = node("a", available_vram=20 * GIB), node("b", available_vram=4 * GIB)
    unlucky = model(rule=wanted(1, strategy=strategy), failures=1, failed_on=[bad.id])
    assert where(plan(cluster(bad, good, models=[unlucky]))) == ["b"]
    assert where(plan(cluster(bad, models=[unlucky]))) == ["a"]


def test_an_idle_node_is_preferred_to_a_free_one_with_work() -> None:
    busy, idle = node("a"), node("b", available_vram=4 * GIB)
    other = model("other")
    view = cluster(busy, idle, models=[model(rule=wanted(1)), other])
    view = cluster(*view.nodes, models=list(view.models), replicas=[replica(busy, "other")])
    assert where(plan(view)) == ["b"]


def test_among_busy_nodes_the_one_with_least_requests_is_taken() -> None:
    nodes = [node("a"), node("b"), node("c")]
    rows = [replica(each, "other", in_flight=n) for each, n in zip(nodes, (3, 1, 2), strict=True)]
    view = cluster(*nodes, models=[model(rule=wanted(1)), model("other")], replicas=rows)
    assert where(plan(view)) == ["b"]


def test_among_equals_the_one_with_most_memory_left_is_taken() -> None:
    view = cluster(
        node("a", available_vram=8 * GIB),
        node("b", available_vram=16 * GIB),
        models=[model(rule=wanted(1), vram_bytes=4 * GIB)],
    )
    assert where(plan(view)) == ["b"]


def test_files_that_are_there_decide_between_nodes_that_are_alike() -> None:
    near, far = node("b", slots=2), node("a", slots=2)
    rows = [
        replica(near, slot=1, state=ReplicaState.UNLOADING),
        replica(far, "other", state=ReplicaState.UNLOADING),
    ]
    view = cluster(far, near, models=[model(rule=wanted(1))], replicas=rows)
    assert where(plan(view)) == ["b"]


def test_spreading_uses_another_node_and_packing_the_same() -> None:
    nodes = [node("a", slots=2), node("b", slots=2)]
    for strategy, expected in ((Strategy.SPREAD, ["a", "b"]), (Strategy.BINPACK, ["a", "a"])):
        rule = wanted(2, strategy=strategy)
        assert where(plan(cluster(*nodes, models=[model(rule=rule)]))) == expected


def test_models_of_one_group_are_kept_apart_where_that_is_possible() -> None:
    hosting, other = node("a"), node("b", available_vram=GIB)
    models = [model(rule=wanted(1), group="big"), model("twin", group="big")]
    rows = [replica(hosting, "twin")]
    assert where(plan(cluster(hosting, other, models=models, replicas=rows))) == ["b"]
    assert where(plan(cluster(hosting, models=models, replicas=rows))) == ["a"]


def test_a_soft_taint_is_used_only_when_nothing_else_fits() -> None:
    soft = Taint(key="spot", effect=TaintEffect.PREFER_NO_SCHEDULE)
    shunned, other = node("a", taints=(soft,)), node("b")
    assert where(plan(cluster(shunned, other, models=[model(rule=wanted(1))]))) == ["b"]
    assert where(plan(cluster(shunned, models=[model(rule=wanted(1))]))) == ["a"]


def test_a_slot_that_is_being_emptied_is_taken_until_it_is_empty() -> None:
    on = node()
    view = cluster(
        on,
        models=[model(rule=wanted(1))],
        replicas=[replica(on, state=ReplicaState.UNLOADING)],
    )
    assert plan(view).place == ()


@pytest.mark.parametrize(
    "lost",
    [
        {"liveness": Liveness.UNHEALTHY},
        {"drain_requested_at": NOW},
        {"approved_at": None},
    ],
)
def test_a_replica_on_a_node_that_cannot_serve_is_not_counted(lost: dict[str, Any]) -> None:
    away, good = node("a", **lost), node("b")
    view = cluster(away, good, models=[model(rule=wanted(1))], replicas=[replica(away)])
    done = plan(view)
    assert where(done) == ["b"]
    assert done.unload == ()


def test_a_cordoned_node_keeps_serving_with_what_it_has() -> None:
    on = node("a", cordoned_at=NOW)
    view = cluster(on, node("b"), models=[model(rule=wanted(1))], replicas=[replica(on)])
    assert plan(view) == Plan()


def test_one_on_every_node_means_one_on_every_node() -> None:
    nodes = [node("a", slots=3), node("b", slots=3), node("c", slots=3, cordoned_at=NOW)]
    rows = [replica(nodes[0]), replica(nodes[0], slot=1)]
    rule = wanted(0, spread_all=True)
    done = plan(cluster(*nodes, models=[model(rule=rule)], replicas=rows))
    assert where(done) == ["b"]
    assert gone(done) == [("a", 1, Cause.CEILING)]


def test_one_more_when_all_are_busy_and_only_one() -> None:
    nodes = [node("a"), node("b"), node("c")]
    rows = [replica(nodes[0], in_flight=1)]
    models = [model(rule=wanted(1, max_replicas=3))]
    done = plan(cluster(*nodes, models=models, replicas=rows))
    assert [one.cause for one in done.place] == [Cause.BURST]
    coming = [job(nodes[1])]
    assert plan(cluster(*nodes, models=models, replicas=rows, jobs=coming)).place == ()


def test_one_more_when_those_that_have_seen_the_prompts_are_too_busy() -> None:
    nodes = [node("a"), node("b")]
    rows = [replica(nodes[0]), replica(nodes[1], in_flight=3)]
    models = [model(rule=wanted(1, max_replicas=3))]
    calm = cluster(node("c"), *nodes, models=models, replicas=rows)
    assert plan(calm).place == ()
    pressed = replace(calm, pressed=frozenset({"llama", "unheard-of"}))
    (one,) = plan(pressed).place
    assert (one.node_name, one.cause) == ("c", Cause.PRESSURE)
    assert one.summary == "llama#0 goes to c: those that have seen the prompts are too busy."
    assert plan(replace(pressed, jobs=(job(nodes[0]),))).place == ()
    full = [model(rule=wanted(1, max_replicas=2))]
    assert plan(replace(pressed, models=tuple(full))).place == ()


def test_a_burst_respects_the_maximum_and_is_no_news_when_there_is_no_room() -> None:
    on = node("a")
    rows = [replica(on, in_flight=1)]
    full = cluster(on, node("b"), models=[model(rule=wanted(1, max_replicas=1))], replicas=rows)
    assert plan(full) == Plan()
    alone = cluster(on, models=[model(rule=wanted(1))], replicas=rows)
    assert plan(alone) == Plan()


def test_nobody_who_serves_leaves_for_one_in_doubt() -> None:
    nodes = [node("a"), node("b")]
    rows = [replica(nodes[0]), replica(nodes[1], suspect_since=NOW)]
    models = [model(rule=wanted(0, max_replicas=1))]
    assert plan(cluster(*nodes, models=models, replicas=rows)).unload == ()
    well = [replica(on) for on in nodes]
    (one,) = plan(cluster(*nodes, models=models, replicas=well)).unload
    assert one.cause == Cause.CEILING


def test_idle_replicas_leave_down_to_the_minimum_the_worst_first() -> None:
    nodes = [node("a", slots=2), node("b", cordoned_at=NOW)]
    rows = [
        replica(nodes[0], used=LONG_AGO),
        replica(nodes[0], slot=1, used=LONG_AGO),
        replica(nodes[1], used=LONG_AGO),
    ]
    done = plan(cluster(*nodes, models=[model(rule=wanted(1))], replicas=rows))
    assert gone(done) == [("b", 0, Cause.IDLE), ("a", 1, Cause.IDLE)]


def test_nobody_asks_for_it_any_more_and_zero_is_enough() -> None:
    on = node()
    rows = [replica(on, used=LONG_AGO)]
    models = [model(rule=wanted(0, max_replicas=2))]
    assert gone(plan(cluster(on, models=models, replicas=rows))) == [("gpu-1", 0, Cause.IDLE)]
    unmanaged = [model(rule=wanted(0))]
    assert plan(cluster(on, models=unmanaged, replicas=rows)).unload == ()


def test_the_last_idle_one_beside_busy_ones_stays() -> None:
    nodes = [node("a"), node("b")]
    rows = [
        replica(nodes[0], in_flight=1, used=LONG_AGO),
        replica(nodes[1], used=LONG_AGO),
    ]
    assert plan(cluster(*nodes, models=[model(rule=wanted(1))], replicas=rows)).unload == ()


def test_pinned_replicas_do_not_leave_for_idleness() -> None:
    on = node(slots=2)
    rows = [replica(on, used=LONG_AGO), replica(on, slot=1, used=LONG_AGO)]
    rule = wanted(1, pinned=True)
    assert plan(cluster(on, models=[model(rule=rule)], replicas=rows)).unload == ()


def test_replicas_above_the_maximum_leave() -> None:
    on = node(slots=3)
    rows = [replica(on, slot=slot) for slot in range(3)]
    done = plan(cluster(on, models=[model(rule=wanted(1, max_replicas=1))], replicas=rows))
    assert gone(done) == [("gpu-1", 2, Cause.CEILING), ("gpu-1", 1, Cause.CEILING)]


def test_a_replica_on_the_wrong_node_leaves_after_its_replacement_serves() -> None:
    wrong, right = node("a"), node("b", labels={"tier": "fast"})
    models = [model(rule=wanted(1, selector="tier=fast"))]
    first = plan(cluster(wrong, right, models=models, replicas=[replica(wrong)]))
    assert where(first) == ["b"]
    assert first.unload == ()
    then = cluster(wrong, right, models=models, replicas=[replica(wrong), replica(right)])
    assert gone(plan(then)) == [("a", 0, Cause.CEILING)]


def test_edited_replicas_are_replaced_before_they_leave() -> None:
    old, new = node("a"), node("b")
    models = [model(revision="r2", rule=wanted(1))]
    first = plan(cluster(old, new, models=models, replicas=[replica(old)]))
    assert [(one.node_name, one.cause) for one in first.place] == [("b", Cause.REPLACE)]
    assert first.unload == ()
    rows = [replica(old), replica(new, revision="r2")]
    assert gone(plan(cluster(old, new, models=models, replicas=rows))) == [("a", 0, Cause.REPLACE)]


def test_edited_replicas_leave_first_where_there_is_no_room_beside_them() -> None:
    on = node()
    done = plan(cluster(on, models=[model(revision="r2", rule=wanted(1))], replicas=[replica(on)]))
    assert gone(done) == [("gpu-1", 0, Cause.REPLACE)]


def test_replicas_of_a_node_being_emptied_are_replaced_elsewhere() -> None:
    leaving, other = node("a", drain_requested_at=NOW), node("b")
    done = plan(
        cluster(leaving, other, models=[model(rule=wanted(1))], replicas=[replica(leaving)])
    )
    assert [(one.node_name, one.cause) for one in done.place] == [("b", Cause.DRAIN)]
    assert done.unload == ()


def test_a_worker_that_registered_again_is_given_time_to_say_what_it_runs() -> None:
    on, other = node("a"), node("b")
    models = [model(rule=wanted(1))]
    doubtful = cluster(on, other, models=models, replicas=[replica(on, suspect_since=NOW)])
    assert plan(doubtful).place == ()
    assert where(plan(doubtful, now=NOW + timedelta(minutes=2))) == ["b"]


def test_the_more_important_model_gets_the_last_slot_of_memory() -> None:
    on = node(available_vram=8 * GIB)
    models = [
        model("a", rule=wanted(1), vram_bytes=8 * GIB),
        model("b", rule=wanted(1, priority=9), vram_bytes=8 * GIB),
    ]
    done = plan(cluster(on, models=models))
    assert [one.model for one in done.place] == ["b"]
    assert [one.model for one in done.starved] == ["a"]


def test_eviction_sends_away_the_fewest_and_the_longest_unused() -> None:
    crowded, roomy = node("a", available_vram=0), node("b", available_vram=0)
    small, big = model("small", vram_bytes=4 * GIB), model("big", vram_bytes=20 * GIB)
    rows = [
        replica(crowded, "small", used=LONG_AGO),
        replica(crowded, "big", used=LONG_AGO),
        replica(roomy, "big", used=NOW.timestamp()),
    ]
    hungry = model(rule=wanted(1), vram_bytes=8 * GIB)
    done = plan(cluster(crowded, roomy, models=[hungry, small, big], replicas=rows))
    assert done.place == ()
    assert "makes room" in done.held[0].reason
    assert [(one.model, one.node_name) for one in done.unload] == [("big", "a")]


def test_nobody_is_evicted_where_it_would_not_help() -> None:
    on = node(available_vram=0, total_vram=24 * GIB)
    small = model("small", vram_bytes=2 * GIB)
    hungry = model(rule=wanted(1), vram_bytes=8 * GIB)
    done = plan(cluster(on, models=[hungry, small], replicas=[replica(on, "small")]))
    assert done.unload == ()
    assert done.starved[0].smallest_fix == "free 8.0 GiB VRAM on gpu-1"


def test_a_burst_evicts_nobody() -> None:
    first, second = node("a"), node("b", available_vram=0)
    rows = [replica(first, in_flight=1), replica(second, "small")]
    models = [model(rule=wanted(1), vram_bytes=8 * GIB), model("small", vram_bytes=20 * GIB)]
    assert plan(cluster(first, second, models=models, replicas=rows)) == Plan()


def test_a_lowered_limit_gives_no_slot_away_while_too_many_run() -> None:
    on = node(slots=1)
    rows = [replica(on, slot=3)]
    assert plan(cluster(on, models=[model(rule=wanted(2))], replicas=rows)).place == ()


def test_a_node_without_gpu_takes_it_into_its_ram_and_only_when_no_gpu_can() -> None:
    plain = node("cpu", total_vram=0, available_vram=0, total_ram=64 * GIB, available_ram=60 * GIB)
    busy, other = node("gpu"), model("other")
    models = [model(vram_bytes=8 * GIB, rule=wanted(2)), other]
    rows = [replica(busy, "other", in_flight=2)]
    assert where(plan(cluster(plain, busy, models=models, replicas=rows))) == ["gpu", "cpu"]


def test_eviction_makes_room_in_ram_where_there_is_no_gpu() -> None:
    on = node("cpu", total_vram=0, available_vram=0, total_ram=64 * GIB, available_ram=2 * GIB)
    idle = model("idle", vram_bytes=8 * GIB)
    models = [model(vram_bytes=8 * GIB, rule=wanted(1)), idle]
    done = plan(cluster(on, models=models, replicas=[replica(on, "idle", used=LONG_AGO)]))
    assert gone(done) == [("cpu", 0, Cause.EVICTED)]


def test_a_second_replica_needs_no_second_copy_of_the_files() -> None:
    on = node(slots=2, total_disk=100 * GIB, available_disk=5 * GIB)
    models = [model(size_bytes=40 * GIB, rule=wanted(2))]
    assert where(plan(cluster(on, models=models, replicas=[replica(on)]))) == ["gpu-1"]


def test_one_on_every_node_tells_of_a_node_where_its_backend_cannot_come() -> None:
    able, unable = node("a"), node("b")
    here, both = frozenset({able.id}), frozenset({able.id, unable.id})
    offers = {"reference": Offer(installed=here, told=both, builds=frozenset())}
    spread = RuleView(spread_all=True)
    done = plan(cluster(able, unable, models=[model(rule=spread)], offers=offers))
    assert where(done) == ["a"]
    assert done.starved[0].smallest_fix == "install the backend reference on b"


def test_draining_at_the_maximum_lets_the_old_one_go_first() -> None:
    leaving, staying, free = node("a", drain_requested_at=NOW), node("b"), node("c")
    models = [model(rule=wanted(2, max_replicas=2))]
    rows = [replica(leaving), replica(staying)]
    done = plan(cluster(leaving, staying, free, models=models, replicas=rows))
    assert gone(done) == [("a", 0, Cause.DRAIN)]
    assert [(one.node_name, one.cause) for one in done.place] == [("c", Cause.DRAIN)]


def test_at_the_maximum_the_next_old_one_stays_while_a_replacement_loads() -> None:
    nodes = [node(name) for name in "abc"]
    models = [model(revision="r2", rule=wanted(3, max_replicas=3))]
    rows = [replica(nodes[0]), replica(nodes[1])]
    loading = [job(nodes[2], revision="r2")]
    done = plan(cluster(*nodes, models=models, replicas=rows, jobs=loading))
    assert (done.place, done.unload) == ((), ())
    assert "One after the other" in done.held[0].reason


def test_who_answers_requests_is_not_stopped_for_its_replacement() -> None:
    on, other = node("a"), node("b")
    models = [model(revision="r2", rule=wanted(1, max_replicas=1))]
    done = plan(cluster(on, other, models=models, replicas=[replica(on, in_flight=1)]))
    assert (done.place, done.unload) == ((), ())
    assert "answer requests" in done.held[0].reason
