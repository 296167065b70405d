from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import jobs, moving, reconciling
from scheduling.states import JobState
from tests.api.clients import Caller, read
from tests.factories import NOW, make_job, make_model, make_node, make_replica, make_rule

MODEL = "/api/models/llama"


def test_one_more_is_loaded_where_the_scheduler_thinks_best_or_where_one_says(
    root: Caller,
) -> None:
    make_model()
    make_node("gpu-1")
    make_node("gpu-2")
    first = root.post(f"{MODEL}/load", {"node": "gpu-2"})
    assert (first.status_code, read(first)["node_name"]) == (202, "gpu-2")
    assert read(first)["cause"] == "operator"
    second = read(root.post(f"{MODEL}/load", {}))
    assert second["node_name"] == "gpu-1"
    full = root.post(f"{MODEL}/load", {})
    assert full.status_code == 503
    assert read(full)["code"] == "no_capacity"
    assert root.post(f"{MODEL}/load", {"node": "nowhere"}).status_code == 404
    assert root.post("/api/models/ghost/load", {}).status_code == 404


def test_replicas_are_unloaded_and_loads_given_up(root: Caller) -> None:
    make_model()
    one, two = make_node("gpu-1"), make_node("gpu-2")
    make_replica(one)
    busy = make_replica(two, in_flight=2)
    coming = make_replica(one, index=1, state=ReplicaState.LOADING)
    make_job(one, index=1, replica=coming)
    refused = root.post(f"{MODEL}/unload", {})
    assert refused.status_code == 409
    assert "2 requests are running" in read(refused)["detail"]
    assert LoadJob.objects.get().state == JobState.PENDING
    some = root.post(f"{MODEL}/unload", {"node": "gpu-1"})
    assert (some.status_code, read(some)["count"]) == (202, 2)
    assert LoadJob.objects.get().state == JobState.CANCELLED
    assert read(root.post(f"{MODEL}/unload", {"force": True}))["count"] == 1
    busy.refresh_from_db()
    assert busy.state == ReplicaState.UNLOADING


def test_nothing_to_unload_is_no_error_but_a_name_that_nobody_knows_is(root: Caller) -> None:
    refused = root.post(f"{MODEL}/unload", {})
    assert (refused.status_code, read(refused)["code"]) == (404, "not_found")
    assert read(refused)["detail"] == "There is no model llama."
    gone = make_replica(make_node(), state=ReplicaState.UNLOADING)  # of a model that was deleted
    assert root.post(f"{MODEL}/unload", {}).status_code == 202
    gone.delete()
    make_model()
    reply = root.post(f"{MODEL}/unload", {})
    assert (reply.status_code, read(reply)["count"]) == (202, 0)


@pytest.mark.parametrize(
    ("verb", "message"), [("unload", "model unloaded"), ("delete", "model deleted from node")]
)
def test_localais_way_to_unload(root: Caller, verb: str, message: str) -> None:
    node = make_node(id=UUID(int=1))
    make_replica(node, in_flight=1)
    path = f"/api/nodes/{node.pk}/models/{verb}"
    reply = root.post(path, {"model_name": "llama"})
    slow = {"message": "model is being unloaded"}  # its worker has not stopped it yet
    assert (reply.status_code, read(reply)) == (202, slow)
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING
    NodeModel.objects.all().delete()
    reply = root.post(path, {"model_name": "llama"})
    assert (reply.status_code, read(reply)) == (200, {"message": message})
    assert root.post(path, {}).status_code == 400
    assert root.post(
        f"/api/nodes/{UUID(int=9)}/models/{verb}", {"model_name": "m"}
    ).status_code == (404)


def arrive(job: LoadJob) -> None:
    assert job.replica is not None
    NodeModel.objects.filter(pk=job.replica.pk).update(state=ReplicaState.LOADED)
    LoadJob.objects.filter(pk=job.pk).update(state=JobState.LOADED, finished_at=NOW)


def test_a_move_serves_until_the_new_one_is_there_and_then_lets_requests_end(
    root: Caller,
) -> None:
    make_model()
    source, _ = make_node("gpu-1"), make_node("gpu-2")
    old = make_replica(source, config_revision="r1", in_flight=1)
    moved = root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-2"})
    assert (moved.status_code, read(moved)["node_name"]) == (202, "gpu-2")
    moving.finish(now=NOW)
    assert NodeModel.objects.all().serving().filter(pk=old.pk).exists()
    arrive(LoadJob.objects.get())
    assert moving.finish(now=NOW) == 0
    old.refresh_from_db()
    assert (old.state, old.withdrawn_at) == (ReplicaState.LOADED, NOW)
    NodeModel.objects.filter(pk=old.pk).update(in_flight=0)
    assert moving.finish(now=NOW) == 1
    old.refresh_from_db()
    assert old.state == ReplicaState.UNLOADING
    assert moving.finish(now=NOW) == 0


def test_a_move_needs_no_room_under_the_maximum_and_no_tick_undoes_it(root: Caller) -> None:
    make_model()
    make_rule(min_replicas=1, max_replicas=1)
    source, target = make_node("gpu-1"), make_node("gpu-2")
    old = make_replica(source, config_revision="r1", last_used=NOW)
    assert root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-2"}).status_code == 202
    plan = reconciling.tick(now=NOW)
    assert plan is not None
    assert (plan.place, plan.unload) == ((), ())
    job = LoadJob.objects.get()
    claimed = jobs.claim(job.pk, by="us", now=NOW)
    assert claimed is not None
    assert jobs.stage(claimed, address="gpu-2:1", now=NOW)
    assert jobs.begin_loading(claimed, options=b"", within=timedelta(minutes=1), now=NOW)
    assert jobs.publish(claimed, now=NOW)
    assert NodeModel.objects.serving().get().node == target
    plan = reconciling.tick(now=NOW)
    assert plan is not None
    assert (plan.place, plan.unload) == ((), ())
    assert moving.finish(now=NOW) == 1
    old.refresh_from_db()
    assert old.state == ReplicaState.UNLOADING
    assert NodeModel.objects.serving().get().node == target


def test_what_moves_already_is_not_moved_again(root: Caller) -> None:
    make_model()
    make_rule(min_replicas=1, max_replicas=1)
    old = make_replica(make_node("gpu-1"), config_revision="r1", in_flight=1)
    for name in ("gpu-2", "gpu-3"):
        make_node(name)
    assert root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-2"}).status_code == 202
    again = root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-3"})
    assert again.status_code == 409
    assert read(again)["detail"] == "It is being moved to gpu-2 already."
    arrive(LoadJob.objects.get())
    moving.finish(now=NOW)
    assert NodeModel.objects.get(pk=old.pk).in_flight == 1
    late = root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-3"})
    assert (late.status_code, read(late)["detail"]) == (409, "llama#0 is leaving gpu-1 already.")
    assert LoadJob.objects.count() == 1


def test_a_move_that_failed_leaves_the_old_one_alone(root: Caller) -> None:
    make_model()
    old = make_replica(make_node("gpu-1"), config_revision="r1")
    make_node("gpu-2")
    root.post(f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-2"})
    LoadJob.objects.update(state=JobState.FAILED, finished_at=NOW)
    assert moving.finish(now=NOW) == 0
    assert NodeModel.objects.all().serving().filter(pk=old.pk).exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"node": "gpu-1", "to": "gpu-1"}, 409),
        ({"node": "gpu-1", "to": "nowhere"}, 404),
        ({"node": "gpu-1", "to": ""}, 400),
        ({"node": "gpu-2", "to": "gpu-1"}, 404),
        ({"node": "gpu-1", "to": "gpu-2", "replica_index": 7}, 404),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(
    root: Caller, body: dict[str, Any], status: int
) -> None:
    make_model()
    make_replica(make_node("gpu-1"))
    make_node("gpu-2")
    assert root.post(f"{MODEL}/move", body).status_code == status
    assert not LoadJob.objects.exists()


def test_why_names_the_cause_and_every_nodes_verdict(root: Caller) -> None:
    make_model()
    make_rule(min_replicas=1)
    make_node(cordoned_at=NOW)
    told = read(root.get(f"{MODEL}/why"))
    assert (told["satisfied"], told["desired"], told["serving"]) == (False, 1, 0)
    assert "cordon" in told["smallest_fix"] + told["reason"] + told["verdicts"][0]["why"]
    assert root.get("/api/models/ghost/why").status_code == 404
