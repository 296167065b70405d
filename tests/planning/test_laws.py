from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from nodes.selectors import Selector
from nodes.states import Liveness, NodeType, ReplicaState, TaintEffect
from nodes.taints import untolerated
from scheduling.planning import deciding
from scheduling.planning.plans import Plan
from scheduling.planning.standing import Standing
from scheduling.planning.views import ClusterView
from scheduling.planning.wishes import read
from scheduling.states import Cause
from tests.planning.clusters import clusters, shuffled
from tests.planning.made import KNOBS, NOW, carried_out, plan

Law = Callable[..., None]
ROUNDS = 3


def law(test: Law) -> Law:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=100, deadline=None, suppress_health_check=checks)(
        given(view=clusters())(test)
    )


def standings(view: ClusterView) -> dict[str, Standing]:
    return dict(deciding.begin(view, now=NOW, knobs=KNOBS).standings)


def placed(done: Plan) -> Counter[str]:
    return Counter(one.model for one in done.place)


@law
def test_no_slot_is_given_twice(view: ClusterView) -> None:
    taken = {(row.node, row.model, row.slot) for row in view.replicas}
    for one in plan(view).place:
        slot = one.node, one.model, one.index
        assert slot not in taken
        taken.add(slot)


@law
def test_no_node_gets_more_replicas_of_a_model_than_it_has_slots(view: ClusterView) -> None:
    after = carried_out(view, plan(view))
    before = Counter((row.node, row.model) for row in view.replicas)
    slots = {node.id: node.slots for node in view.nodes}
    for (node, model), number in Counter((r.node, r.model) for r in after.replicas).items():
        assert number <= max(slots[node], before[node, model])


def running(view: ClusterView) -> Counter[str]:
    """What runs where somebody answers, of whatever revision, or loads; who leaves is left out."""
    answering = {n.id for n in view.nodes if n.approved_at and n.liveness == Liveness.HEALTHY}
    draining = {node.id for node in view.nodes if node.drain_requested_at}
    # In doubt; or moved away, and only finishing its requests
    passed_over = {
        row.id
        for row in view.replicas
        if row.suspect_since is not None or (row.withdrawn_at and row.node not in draining)
    }
    models = {model.name: model for model in view.models}
    found = Counter(
        row.model
        for row in view.replicas
        if row.state == ReplicaState.LOADED and row.node in answering and row.id not in passed_over
    )
    for one in view.jobs:
        known = models.get(one.model)
        current = known is not None and known.revision == one.revision
        found[one.model] += one.active and current and one.node in answering - draining
    return found


@law
def test_nothing_is_placed_above_the_maximum_and_no_replacement_either(view: ClusterView) -> None:
    done = plan(view)
    before, after = standings(view), running(carried_out(view, done))
    for model in placed(done):
        limit = before[model].rule.max_replicas
        assert not limit or after[model] <= limit


@law
def test_where_the_maximum_allows_two_a_replacement_never_takes_the_last_one(
    view: ClusterView,
) -> None:
    done = plan(view)
    gone = {one.replica for one in done.unload}
    for standing in standings(view).values():
        if standing.rule.max_replicas < 2 or not standing.rule.min_replicas:
            continue
        there = [*standing.serving, *standing.old]
        left = [row for row in there if row.id not in gone]
        assert len(left) >= min(len(there), 1) or len(there) == 1


@law
def test_loads_are_given_up_above_the_maximum_and_never_below_the_minimum(
    view: ClusterView,
) -> None:
    before, jobs = standings(view), {one.id: one for one in view.jobs}
    done, useless = plan(view), in_vain(view)
    given_up = [one for one in done.cancel if one.job not in useless]
    for model, number in Counter(one.model for one in given_up).items():
        standing = before[model]
        assert standing.running - number >= standing.rule.max_replicas > 0
        assert standing.have - number >= standing.rule.min_replicas
    assert all(jobs[one.job].active for one in done.cancel)


@law
def test_every_load_is_given_up_whose_model_is_another_by_now(view: ClusterView) -> None:
    cancelled = [one.job for one in plan(view).cancel]
    assert in_vain(view) <= set(cancelled)
    assert len(cancelled) == len(set(cancelled))


def in_vain(view: ClusterView) -> set[int]:
    revisions = {model.name: model.revision for model in view.models if model.defined}
    return {job.id for job in view.jobs if job.active and revisions.get(job.model) != job.revision}


@law
def test_nothing_lands_where_its_backend_cannot_come(view: ClusterView) -> None:
    nodes = {node.id: node for node in view.nodes}
    for one in plan(view).place:
        offer, node = view.offers.get("reference"), nodes[one.node]
        if offer is not None and node.id not in offer.installed and node.id in offer.told:
            assert "nvidia" in offer.builds
            assert node.capability.startswith("nvidia")


@law
def test_the_plan_itself_takes_no_model_below_its_floor(view: ClusterView) -> None:
    before, gone = standings(view), {one.replica for one in plan(view).unload}
    for standing in before.values():
        left = [row for row in standing.serving if row.id not in gone]
        if len(left) < len(standing.serving) and not standing.rule.spread_all:
            assert len(left) >= standing.rule.min_replicas


@law
def test_while_old_ones_are_replaced_no_fewer_serve_than_before_but_for_one_without_room(
    view: ClusterView,
) -> None:
    before, done = standings(view), plan(view)
    leavers = (*done.unload, *done.retire)
    for name, standing in before.items():
        rule = standing.rule
        serving = {row.id for row in (*standing.serving, *standing.old)}
        goal = max(rule.min_replicas, standing.model.rolling)
        goal = min(goal, rule.max_replicas) if rule.max_replicas else goal
        replaced = [one for one in leavers if one.cause != Cause.IDLE]  # nobody misses an idle one
        gone = [one for one in replaced if one.model == name and one.replica in serving]
        if standing.old and not rule.spread_all:
            gaps = sum(one.gap for one in gone)
            assert not gaps or len(gone) == 1
            assert len(serving) - len(gone) >= min(goal, len(serving)) - gaps


@law
def test_nobody_in_flight_is_unloaded_and_nobody_who_does_not_serve(view: ClusterView) -> None:
    rows = {row.id: row for row in view.replicas}
    for one in plan(view).unload:
        assert rows[one.replica].in_flight == 0
        assert rows[one.replica].state == ReplicaState.LOADED


@law
def test_nothing_lands_on_a_node_that_is_closed_or_not_meant(view: ClusterView) -> None:
    nodes = {node.id: node for node in view.nodes}
    models = {model.name: model for model in view.models}
    for one in plan(view).place:
        node, wish = nodes[one.node], read(models[one.model])
        assert node.node_type == NodeType.BACKEND
        assert node.approved_at
        assert node.liveness == Liveness.HEALTHY
        assert (node.drain_requested_at, node.cordoned_at, node.quarantined_until) == (None,) * 3
        assert Selector.parse(wish.rule.selector).matches(node.labels)
        left = untolerated(node.taints, tolerations=wish.tolerations)
        assert TaintEffect.NO_SCHEDULE not in [taint.effect for taint in left]


@law
def test_memory_and_disk_are_never_promised_twice(view: ClusterView) -> None:
    done = plan(view)
    memory: defaultdict[Any, int] = defaultdict(int)
    disk: defaultdict[Any, int] = defaultdict(int)
    models = {model.name: model for model in view.models}
    there = {(row.node, row.model) for row in view.replicas}
    for one in view.jobs:
        memory[one.node] += one.reserved_vram if one.reservation_ended_at is None else 0
        known = models.get(one.model)
        disk[one.node] += (known.size_bytes or 0) if known and one.active else 0
    nodes = {node.id: node for node in view.nodes}
    for place in done.place:
        node = nodes[place.node]
        memory[node.id] += place.vram
        if (node.id, place.model) not in there:  # files that are there are not fetched again
            there.add((node.id, place.model))
            disk[node.id] += models[place.model].size_bytes or 0
            assert not node.total_disk or disk[node.id] <= node.available_disk
        if place.vram:
            free = node.available_vram if node.total_vram else node.available_ram
            assert memory[node.id] <= free


@law
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(view: ClusterView) -> None:
    done = plan(view)
    # Loads that are given up leave room that nobody knew of, and below the maximum the next old
    # replica may be replaced: see the next law
    assume(not done.cancel)
    again = plan(carried_out(view, done))
    # While an edit is under way the idle stay; when its last old replica has gone, they go
    edited = {name for name, one in standings(view).items() if one.old}
    rest = [one for one in again.unload if one.cause != Cause.IDLE or one.model not in edited]
    assert (again.place, rest, again.retire) == ((), [], ())


@law
def test_plans_that_are_carried_out_one_after_the_other_soon_leave_nothing_to_do(
    view: ClusterView,
) -> None:
    for _ in range(ROUNDS):
        done = plan(view)
        view = carried_out(view, done)
    assert (done.place, done.unload, done.retire, done.cancel) == ((), (), (), ())


@settings(max_examples=100, deadline=None)
@given(view=clusters(), seed=st.integers(0, 9))
def test_the_same_cluster_gives_the_same_plan_in_whatever_order_its_rows_come(
    view: ClusterView, seed: int
) -> None:
    assert plan(view) == plan(shuffled(view, seed))


@law
def test_only_what_may_leave_is_evicted(view: ClusterView) -> None:
    before, rows = standings(view), {row.id: row for row in view.replicas}
    done = plan(view)
    hungry = {held.model for held in done.held}
    for one in done.unload:
        if one.cause == "evicted":
            victim = before[one.model].rule
            assert not victim.pinned
            assert victim.priority <= max(before[name].rule.priority for name in hungry)
            assert rows[one.replica] in before[one.model].serving


@law
def test_a_model_that_fails_or_cannot_be_read_is_left_alone(view: ClusterView) -> None:
    quiet = {
        name
        for name, standing in standings(view).items()
        if standing.wish is None or standing.model.retry_at or not standing.model.defined
    }
    assert not quiet & placed(plan(view)).keys()


CAUSES = {
    *("cancel", "in words", "unload: drain", "place: floor", "place: spread", "place: burst"),
    *("place: replace", "unload: replace", "unload: idle", "unload: ceiling", "unload: evicted"),
}


def test_the_laws_are_tried_on_clusters_where_something_happens() -> None:
    causes: set[str] = set()

    def seen_all(view: ClusterView) -> bool:
        done = plan(view)
        causes.update(f"place: {one.cause}" for one in done.place)
        causes.update(f"unload: {one.cause}" for one in done.unload)
        causes.update("cancel" for _ in done.cancel)
        causes.update("in words" for one in done.place if "max_replicas" in one.summary)
        return causes >= CAUSES

    once = settings(max_examples=5000, database=None, phases=[Phase.generate])
    try:
        # Dice that come to everything soon; any others do, some after ten times as many throws
        find(clusters(), seen_all, settings=once, random=Random(4))
    except NoSuchExample:
        assert causes >= CAUSES  # says which are missing
