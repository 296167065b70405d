"""An edit, or a deletion, while a long load is under way."""

from datetime import timedelta
from typing import Any

import pytest

from clustermgr.models import Bell
from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.definitions import Definition
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import asking, defining, placing, reconciling, standing
from scheduling.services.placing import MakingRoom
from scheduling.states import Cause, Cutover, JobState
from tests.factories import NOW, make_job, make_node, make_replica, make_rule

pytestmark = pytest.mark.django_db(transaction=True)
OLD = Definition.of({"name": "llama", "backend": "reference"})
NEW = OLD.changed({"options": {"ContextSize": 99}})
SOON = NOW + timedelta(seconds=30)


def loading() -> LoadJob:
    """The only slot is taken by a load that may take an hour."""
    node = make_node()
    defining.create(OLD, by="ada", now=NOW)
    make_rule(min_replicas=1)
    row = make_replica(node, state=ReplicaState.LOADING, config_revision=OLD.revision)
    return make_job(
        node,
        replica=row,
        state=JobState.LOADING,
        fence=1,
        due_at=None,
        lease_until=NOW + timedelta(hours=1),
        started_at=NOW,
        config_revision=OLD.revision,
    )


def tick(queued: list[tuple[Any, ...]], now: Any = NOW) -> None:
    """One tick, and what it rings for."""
    queued.clear()
    Bell.objects.all().delete()  # as a tick does that begins
    reconciling.tick(now=now)
    for loads in [args[0] for name, *args in queued if name == "scheduling.give_up"]:
        reconciling.give_up(loads, now=now)


@pytest.mark.parametrize("cutover", Cutover)
def test_an_edit_does_not_wait_for_the_load_of_what_was_before(
    cutover: Cutover, queued: list[tuple[Any, ...]]
) -> None:
    job = loading()
    defining.edit("llama", NEW, by="ada", now=NOW, cutover=cutover)
    told = asking.why("llama", now=NOW)
    assert told.reason == "A load from before its edit is given up: that slot is free in a moment."
    assert (told.smallest_fix, told.coming) == ("", 0)
    tick(queued)
    job.refresh_from_db()
    assert (job.state, job.last_error) == (
        JobState.CANCELLED,
        "Its model was edited since this load began.",
    )
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING  # its process is stopped
    assert ("scheduling.reconcile",) in queued
    tick(queued, SOON)
    assert ModelSchedulingConfig.objects.get().unsatisfiable_since is None
    NodeModel.objects.all().delete()
    tick(queued, SOON)
    assert LoadJob.objects.active().get().config_revision == NEW.revision


def test_a_request_waits_for_the_slot_of_a_load_that_is_given_up() -> None:
    loading()
    defining.edit("llama", NEW, by="ada", now=NOW)
    with pytest.raises(MakingRoom, match="from before its edit"):
        placing.place("llama", cause=Cause.REQUEST, by="tests", now=NOW)


def test_a_load_that_was_opened_while_its_model_was_deleted_is_given_up(
    queued: list[tuple[Any, ...]],
) -> None:
    job = loading()
    ModelLoadInfo.objects.all().delete()
    tick(queued)
    job.refresh_from_db()
    assert (job.state, job.last_error) == (
        JobState.CANCELLED,
        "Nobody defines its model any more.",
    )
    assert standing.one("llama").loading == 0
