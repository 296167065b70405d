from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from clustermgr.lib.errors import (
    Conflict,
    DomainError,
    InvalidInput,
    NotFound,
    PreconditionFailed,
)
from nodes.models import ClusterEvent, NodeModel
from nodes.states import ReplicaState
from scheduling.definitions import Definition
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import defining
from scheduling.services.defining import Edited
from tests.factories import NOW, make_job, make_node, make_replica, make_rule

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queued")]
LATER = NOW + timedelta(minutes=1)


def of(**changes: Any) -> Definition:
    return Definition.of({"name": "llama", "backend": "reference", **changes})


def edit(**changes: Any) -> Edited:
    return defining.edit("llama", of(**changes), by="ada", now=LATER)


def test_a_model_is_defined_once() -> None:
    model = defining.create(of(), by="ada", now=NOW)
    assert (model.version, model.options, model.created_by) == (1, {"Model": "llama"}, "ada")
    assert ClusterEvent.objects.get().kind == "model.created"
    with pytest.raises(Conflict, match="edit it instead"):
        defining.create(of(), by="bob", now=NOW)
    assert ClusterEvent.objects.count() == 1


def test_an_edit_takes_older_replicas_out_of_service_at_once() -> None:
    first = defining.create(of(), by="ada", now=NOW).config_revision
    node = make_node()
    make_replica(node, index=0, config_revision=first)
    make_replica(node, index=1, config_revision=first, state=ReplicaState.LOADING)
    make_replica(node, "other", config_revision="r1")
    assert NodeModel.objects.all().serving().filter(model_name="llama").count() == 1
    edited = edit(options={"Threads": 4})
    assert edited.to_replace == 2
    assert edited.model.version == 2
    assert not NodeModel.objects.all().serving().filter(model_name="llama").exists()
    assert NodeModel.objects.all().serving().filter(model_name="other").exists()


def test_an_edit_that_is_taken_back_puts_its_replicas_back_to_work() -> None:
    first = defining.create(of(), by="ada", now=NOW).config_revision
    make_replica(make_node(), config_revision=first)
    edit(options={"Threads": 4})
    assert edit().to_replace == 0
    assert NodeModel.objects.all().serving().count() == 1


def test_an_edit_of_the_size_replaces_nothing() -> None:
    first = defining.create(of(), by="ada", now=NOW).config_revision
    make_replica(make_node(), config_revision=first)
    edited = edit(vram="4 GiB")
    assert (edited.changed, edited.to_replace, edited.model.version) == (True, 0, 2)
    assert NodeModel.objects.all().serving().count() == 1


def test_an_edit_that_means_the_same_is_none() -> None:
    defining.create(of(options={"Threads": 4}), by="ada", now=NOW)
    edited = edit(options={"MMap": False, "Threads": 4})
    assert (edited.changed, edited.model.version) == (False, 1)
    assert ClusterEvent.objects.count() == 1


def test_an_edit_gives_a_model_that_failed_a_new_try_and_is_remembered() -> None:
    defining.create(of(), by="ada", now=NOW)
    ModelLoadInfo.objects.update(failures=5, retry_at=LATER, last_error="no such file")
    model = edit(options={"Threads": 4}).model
    assert (model.failures, model.retry_at, model.last_error) == (0, None, "")
    event = ClusterEvent.objects.get(kind="model.edited")
    assert event.before["options"] == {"Model": "llama"}
    assert event.after["options"] == {"Model": "llama", "Threads": 4}
    assert (event.actor, event.subject) == ("ada", "llama")


def test_who_edits_an_old_version_is_told() -> None:
    defining.create(of(), by="ada", now=NOW)
    edit(options={"Threads": 4})
    with pytest.raises(PreconditionFailed):
        defining.edit("llama", of(), by="bob", now=LATER, expected_version=1)


def test_a_rename_is_refused() -> None:
    defining.create(of(), by="ada", now=NOW)
    with pytest.raises(InvalidInput, match="cannot be renamed"):
        defining.edit("llama", of(name="alpaca"), by="ada", now=NOW)


def test_a_model_that_is_wanted_is_deleted_only_by_force() -> None:
    defining.create(of(), by="ada", now=NOW)
    make_rule(min_replicas=1)
    with pytest.raises(Conflict, match="has a scheduling rule"):
        defining.delete("llama", by="ada", now=NOW)
    ModelSchedulingConfig.objects.all().delete()
    node = make_node()
    make_replica(node)
    with pytest.raises(Conflict, match="has 1 replica; unload"):
        defining.delete("llama", by="ada", now=NOW)
    loading = make_replica(node, index=1, state=ReplicaState.LOADING)
    make_job(node, index=1, replica=loading)
    make_rule(min_replicas=1)
    assert defining.delete("llama", by="ada", now=NOW, force=True) == 2
    assert not ModelLoadInfo.objects.exists()
    assert not ModelSchedulingConfig.objects.exists()
    assert set(NodeModel.objects.values_list("state", flat=True)) == {ReplicaState.UNLOADING}
    assert LoadJob.objects.active().count() == 0
    with pytest.raises(NotFound):
        defining.delete("llama", by="ada", now=NOW, force=True)


def test_a_list_is_imported_whole_or_not_at_all() -> None:
    defining.create(of(), by="ada", now=NOW)
    good = {"name": "alpaca", "backend": "reference"}
    with pytest.raises(InvalidInput, match=r"Model 2: .*did you mean ContextSize"):
        defining.import_all(
            [good, {**good, "name": "b", "options": {"ContextSise": 1}}], by="ada", now=NOW
        )
    assert ModelLoadInfo.objects.count() == 1
    with pytest.raises(InvalidInput, match="twice"):
        defining.import_all([good, good], by="ada", now=NOW)
    done = defining.import_all([good, {"name": "llama", "backend": "other"}], by="ada", now=NOW)
    assert (done.created, done.edited) == (["alpaca"], ["llama"])
    assert defining.import_all([good], by="ada", now=NOW).unchanged == ["alpaca"]
    with pytest.raises(InvalidInput, match="A list of models"):
        defining.import_all({"name": "x"}, by="ada", now=NOW)


@pytest.mark.django_db(transaction=True)
def test_of_edits_at_the_same_time_one_wins_and_the_others_are_told() -> None:
    defining.create(of(), by="ada", now=NOW)

    def attempt(number: int) -> str:
        try:
            defining.edit(
                "llama",
                of(options={"Threads": number}),
                by="ada",
                now=NOW,
                expected_version=1,
            )
        except DomainError as refusal:
            return refusal.code
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(attempt, range(1, 9)))
    assert answers == ["done", *["precondition_failed"] * 7]
    assert ModelLoadInfo.objects.get().version == 2
