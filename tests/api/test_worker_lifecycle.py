from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import jointokens
from nodes.states import Liveness
from tests.api.clients import SECRET, Caller, Worker, read
from tests.factories import NOW, make_replica


def test_a_new_worker_waits_for_approval_and_keeps_its_id(worker: Worker, root: Caller) -> None:
    first = read(worker.register())
    assert first["status"] == "pending"
    assert root.post(f"/api/nodes/{first['id']}/approve").status_code == 200
    again = read(worker.register())
    assert (again["id"], again["status"]) == (first["id"], "healthy")
    assert again["created_at"] == first["created_at"]


def test_no_verb_of_a_worker_approves_it(worker: Worker) -> None:
    node = worker.joined()
    for verb in ("heartbeat", "drain", "resume", "deregister", "resume", "heartbeat"):
        assert worker.post(f"/api/node/{node}/{verb}").status_code == 200
    assert read(worker.register())["status"] == "pending"


def test_a_worker_does_not_undo_an_operators_orders(worker: Worker, root: Caller) -> None:
    node = worker.joined()
    root.post(f"/api/nodes/{node}/approve")
    root.post(f"/api/nodes/{node}/cordon", {"reason": "fan is loud"})
    root.post(f"/api/nodes/{node}/drain")
    worker.post(f"/api/node/{node}/resume")
    worker.register()
    shown = read(root.get(f"/api/nodes/{node}"))
    assert (shown["status"], shown["cordon_reason"]) == ("draining", "fan is loud")


def test_a_stopping_worker_sees_what_is_still_in_flight(worker: Worker, root: Caller) -> None:
    node = worker.joined()
    root.post(f"/api/nodes/{node}/approve")
    make_replica(BackendNode.objects.get(), in_flight=2)
    assert worker.post(f"/api/node/{node}/drain", content_type="").status_code == 200
    polled = read(worker.get(f"/api/node/{node}/models"))
    assert sum(model["in_flight"] for model in polled) == 2
    assert read(root.get("/api/nodes/models")) == []


def test_goodbye_is_said_twice_without_harm(worker: Worker) -> None:
    node = worker.joined()
    make_replica(BackendNode.objects.get())
    assert worker.post(f"/api/node/{node}/deregister").status_code == 200
    assert worker.delete(f"/api/node/{node}").status_code == 200
    assert BackendNode.objects.get().liveness == Liveness.OFFLINE
    assert not NodeModel.objects.exists()
    assert ClusterEvent.objects.filter(kind="node.left").count() == 1


def test_a_retired_worker_is_told_so_and_an_operator_hears_of_it(
    worker: Worker, root: Caller
) -> None:
    node = worker.joined()
    root.post(f"/api/nodes/{node}/retire", {"reason": "sold"})
    assert worker.post(f"/api/node/{node}/heartbeat").status_code == 410
    assert worker.register().status_code == 410
    urgent = read(root.get("/api/events?severity=attention&unacknowledged=true"))
    assert {event["kind"] for event in urgent} == {"worker.refused", "join.refused"}


def test_a_token_speaks_only_for_the_nodes_that_joined_with_it(worker: Worker) -> None:
    _, other_secret = jointokens.issue("other", by="tests", now=NOW)
    other, node = Worker(other_secret), worker.joined()
    before = BackendNode.objects.values().get()
    path = f"/api/node/{node}"
    replies = [other.post(f"{path}/{verb}") for verb in ("heartbeat", "drain", "resume")]
    replies += [other.post(f"{path}/deregister"), other.delete(path), other.get(f"{path}/models")]
    replies += [other.register()]
    assert {reply.status_code for reply in replies} == {403}
    assert {read(reply)["error"]["type"] for reply in replies} == {"node_error"}
    assert BackendNode.objects.values().get() == before


def test_another_token_does_not_excuse_the_one_in_the_body(worker: Worker) -> None:
    _, other_secret = jointokens.issue("other", by="tests", now=NOW)
    assert Worker(other_secret).register(token=SECRET).status_code == 401
    assert not BackendNode.objects.exists()
