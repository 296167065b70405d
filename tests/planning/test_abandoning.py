import pytest

from nodes.states import Liveness, ReplicaState
from scheduling.planning.views import ClusterView, RuleView
from scheduling.states import Cause
from tests.planning.made import cluster, job, model, node, plan, replica, wanted

GIVEN_UP = "A load from before its edit is given up: that slot is free in a moment."


def loading(rule: RuleView | None, *, revision: str = "r2", rolling: int = 0) -> ClusterView:
    """One node with one slot, which a load of the revision r1 takes."""
    here = node()
    rows = [replica(here, state=ReplicaState.LOADING)]
    edited = model(revision=revision, rolling=rolling, rule=rule)
    return cluster(here, models=[edited], replicas=rows, jobs=[job(here, id=7)])


@pytest.mark.parametrize("rule", [wanted(1), RuleView(spread_all=True)])
@pytest.mark.parametrize("rolling", [0, 1])
def test_a_load_from_before_an_edit_is_given_up_and_its_slot_waited_for(
    rule: RuleView, rolling: int
) -> None:
    done = plan(loading(rule, rolling=rolling))
    assert [(one.job, one.reason) for one in done.cancel] == [
        (7, "Its model was edited since this load began.")
    ]
    assert (done.place, done.starved) == ((), ())
    assert [one.reason for one in done.held] == [GIVEN_UP]


def test_a_load_of_the_current_revision_goes_on() -> None:
    done = plan(loading(wanted(1), revision="r1"))
    assert (done.cancel, done.place, done.held, done.starved) == ((), (), (), ())


@pytest.mark.parametrize("rule", [None, wanted(1)])
def test_a_load_whose_model_was_deleted_is_given_up(rule: RuleView | None) -> None:
    done = plan(loading(rule, revision=""))
    assert [one.reason for one in done.cancel] == ["Nobody defines its model any more."]


def test_the_new_revision_goes_elsewhere_at_once_if_it_can() -> None:
    view = loading(wanted(1, max_replicas=1))
    other = node("gpu-2")
    done = plan(cluster(*view.nodes, other, models=list(view.models), jobs=list(view.jobs)))
    assert [(one.node_name, one.cause) for one in done.place] == [("gpu-2", Cause.FLOOR)]
    assert [one.job for one in done.cancel] == [7]


def test_nobody_waits_for_a_load_where_nobody_answers() -> None:
    view = loading(wanted(1))
    away = view.nodes[0]._replace(liveness=Liveness.OFFLINE)
    done = plan(cluster(away, models=list(view.models), jobs=list(view.jobs)))
    assert [one.job for one in done.cancel] == [7]
    assert done.starved
