from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import events
from nodes.states import ReplicaState
from scheduling.definitions import Definition
from scheduling.models import LoadJob, ModelLoadInfo, PlacementDecision
from scheduling.planning.plans import Rolled
from scheduling.services import defining, intents, reconciling, rolling, standing
from scheduling.states import Cause, Cutover
from tests.factories import NOW, make_model, make_node, make_replica, make_rule

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """What is rung is kept."""


def of(threads: int = 0, **changes: Any) -> Definition:
    options = {"Threads": threads} if threads else {}
    return Definition.of({"name": "llama", "backend": "reference", "options": options, **changes})


def edit(threads: int, cutover: Cutover | None = Cutover.ROLLING, **changes: Any) -> ModelLoadInfo:
    wanted = of(threads, **changes)
    return defining.edit("llama", wanted, by="ada", now=NOW, cutover=cutover).model


def serving() -> int:
    return NodeModel.objects.serving().count()


@pytest.fixture
def first() -> ModelLoadInfo:
    """A model with two replicas on two nodes, and a third node."""
    model = defining.create(of(), by="ada", now=NOW)
    make_rule(min_replicas=2)
    for name in ("gpu-1", "gpu-2"):
        make_replica(make_node(name), config_revision=model.config_revision)
    make_node("gpu-3")
    return model


def arrive() -> None:
    """Loads under way are over."""
    jobs = LoadJob.objects.active()
    rows = NodeModel.objects.filter(load_job__in=jobs)
    rows.update(state=ReplicaState.LOADED, last_used=NOW)
    jobs.update(state="loaded", finished_at=NOW, due_at=None)


@pytest.mark.usefixtures("first")
def test_old_ones_serve_until_new_ones_stand_in_for_them_one_after_the_other() -> None:
    model = edit(4)
    assert (model.rolling_since, model.rolling_replicas, serving()) == (NOW, 2, 2)
    assert standing.one("llama").outdated == 2
    for _ in range(6):
        reconciling.tick(now=NOW)
        assert serving() >= 2
        arrive()
        NodeModel.objects.filter(state=ReplicaState.UNLOADING).delete()
    model.refresh_from_db()
    assert (model.rolling_since, model.rolling_replicas) == (None, 0)
    revisions = NodeModel.objects.serving().values_list("config_revision", flat=True)
    assert list(revisions) == [model.config_revision] * 2
    assert ClusterEvent.objects.get(kind="model.rolled").subject == "llama"
    assert set(LoadJob.objects.values_list("cause", flat=True)) == {Cause.REPLACE}


@pytest.mark.usefixtures("first")
def test_an_edit_at_once_ends_a_rolling_one() -> None:
    edit(4)
    model = edit(8, cutover=None)
    assert (model.rolling_since, serving()) == (None, 0)


@pytest.mark.usefixtures("first")
def test_said_expressly_it_ends_without_another_change() -> None:
    edit(4)
    assert edit(4, cutover=None).rolling_since == NOW
    assert serving() == 2
    assert edit(4, cutover=Cutover.AT_ONCE).rolling_since is None
    assert serving() == 0


@pytest.mark.usefixtures("first")
def test_an_edit_of_the_size_leaves_it_alone() -> None:
    edit(4)
    assert edit(4, cutover=None, vram="4 GiB").rolling_since == NOW
    assert serving() == 2


@pytest.mark.usefixtures("first")
def test_going_back_makes_the_old_ones_current_and_it_is_over() -> None:
    edit(4)
    model = edit(0)
    assert (model.rolling_since, serving()) == (None, 2)
    assert rolling.to_replace("llama") == 0


@pytest.mark.usefixtures("first")
def test_with_nobody_serving_it_is_over_before_it_began() -> None:
    NodeModel.objects.update(suspect_since=NOW)
    assert edit(4).rolling_since is None
    assert NodeModel.objects.filter(outdated_at=NOW).count() == 2


@pytest.mark.usefixtures("first")
def test_a_gap_is_a_decision_of_its_own() -> None:
    NodeModel.objects.filter(node__name="gpu-2").delete()
    BackendNode.objects.filter(name__in=("gpu-2", "gpu-3")).update(cordoned_at=NOW)
    edit(4)
    plan = reconciling.tick(now=NOW)
    assert plan is not None
    assert [one.gap for one in plan.unload] == [True]
    assert "none serves until the new one is loaded" in PlacementDecision.objects.get().summary


def test_a_goal_without_a_beginning_is_refused(first: ModelLoadInfo) -> None:
    first.rolling_replicas = 1
    with pytest.raises(IntegrityError, match="model_rolls_some"):
        first.save()


def test_the_end_takes_one_statement_for_many_models() -> None:
    node = make_node()
    costs = []
    for names in (["a", "b"], [f"m{number}" for number in range(9)]):
        for name in names:
            make_model(name, config_revision="r2", rolling_since=NOW, rolling_replicas=1)
            make_replica(node, name, 0, config_revision="r1")
            make_replica(node, name, 1, config_revision="r2", outdated_at=NOW)
        with CaptureQueriesContext(connection) as caught:
            over = [Rolled(model=name, revision="r2") for name in names]
            intents.let_go((), rolled=over, by=events.SYSTEM, now=NOW)
        costs.append(len(caught))
        old, new = (
            NodeModel.objects.filter(model_name__in=names, config_revision=revision)
            for revision in ("r1", "r2")
        )
        assert not old.filter(outdated_at=None).exists()
        assert not new.filter(outdated_at__isnull=False).exists()
        assert ClusterEvent.objects.filter(kind="model.rolled", subject__in=names).count()
        assert not ModelLoadInfo.objects.filter(rolling_since__isnull=False).exists()
    assert costs == [1, 1]


def test_an_edit_between_look_and_write_is_not_ended_with_the_one_before() -> None:
    make_model(config_revision="r3", rolling_since=NOW, rolling_replicas=1)
    make_replica(make_node(), config_revision="r2")
    over = [Rolled(model="llama", revision="r2")]
    intents.let_go((), rolled=over, by=events.SYSTEM, now=NOW)
    assert serving() == 1
    assert ModelLoadInfo.objects.get().rolling_since == NOW
    assert not ClusterEvent.objects.exists()
