import pytest

from nodes.models import BackendNode, ClusterEvent
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node, make_pending, make_replica


def test_row_62_approving_twice_is_a_sentence(root: Caller) -> None:
    node = make_pending()
    assert read(root.post(f"/api/nodes/{node.pk}/approve"))["status"] == "healthy"
    again = root.post(f"/api/nodes/{node.pk}/approve")
    assert (again.status_code, read(again)["code"]) == (409, "invalid_move")
    assert read(again)["detail"].startswith("new-1 is already approved (by root at ")
    assert ClusterEvent.objects.filter(kind="node.approved").count() == 1


def test_a_live_node_is_not_deleted_but_retired_by_name(root: Caller) -> None:
    node = make_node()
    reply = root.delete(f"/api/nodes/{node.pk}")
    assert (reply.status_code, read(reply)["code"]) == (409, "conflict")
    assert f"/api/nodes/{node.pk}/retire" in read(reply)["detail"]
    node.refresh_from_db()
    assert node.retired_at is None


def test_deleting_a_node_that_is_away_retires_it_and_keeps_its_history(root: Caller) -> None:
    node = make_node(liveness="offline")
    make_replica(node)
    for _ in range(2):
        reply = root.delete(f"/api/nodes/{node.pk}")
        assert (reply.status_code, read(reply)) == (200, {"message": "node deregistered"})
    node.refresh_from_db()
    assert node.retired_at is not None
    assert not node.replicas.exists()
    assert ClusterEvent.objects.filter(kind="node.retired").count() == 1
    assert read(root.get("/api/nodes")) == []
    assert read(root.get(f"/api/nodes/{node.pk}"))["status"] == "retired"


@pytest.mark.parametrize("verb", ["drain", "stop-worker", "resume", "cordon", "uncordon", "retire"])
def test_a_verb_said_twice_is_said_once(root: Caller, verb: str) -> None:
    node = make_node()
    for opposite in ("drain", "cordon"):
        root.post(f"/api/nodes/{node.pk}/{opposite}")
    replies = [root.post(f"/api/nodes/{node.pk}/{verb}") for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 200]
    remembered = ClusterEvent.objects.values_list("kind", flat=True)
    assert len(remembered) == len(set(remembered))


@pytest.mark.parametrize("verb", ["approve", "drain", "stop-worker", "resume", "cordon"])
def test_a_retired_node_takes_no_orders(root: Caller, verb: str) -> None:
    node = make_node(liveness="offline", retired_at=NOW, retired_by="tests")
    reply = root.post(f"/api/nodes/{node.pk}/{verb}")
    assert (reply.status_code, read(reply)["code"]) == (409, "invalid_move")
    assert "retired" in read(reply)["detail"]


def test_who_is_readmitted_waits_for_approval(root: Caller) -> None:
    node = make_node()
    early = root.post(f"/api/nodes/{node.pk}/readmit")
    assert (early.status_code, read(early)["code"]) == (409, "invalid_move")
    root.post(f"/api/nodes/{node.pk}/retire", {"reason": "sold"})
    assert root.post(f"/api/nodes/{node.pk}/readmit").status_code == 200
    assert read(root.get(f"/api/nodes/{node.pk}"))["retired_at"] is None


def test_a_drain_may_have_a_deadline_and_a_reason(root: Caller) -> None:
    node = make_node()
    asked = {"deadline_seconds": 600, "reason": "new  fan\n"}
    assert root.post(f"/api/nodes/{node.pk}/drain", asked).status_code == 200
    node.refresh_from_db()
    assert node.drain_deadline is not None
    assert node.drain_requested_at is not None
    assert (node.drain_deadline - node.drain_requested_at).total_seconds() == 600
    assert (node.drain_reason, node.drain_requested_by) == ("new fan", "root")


@pytest.mark.parametrize("node_id", ["x", "%00", "%0A", "%FF", "9" * 5000, "models%2Fx", "null"])
@pytest.mark.parametrize("verb", ["", "/approve", "/labels", "/models", "/vram-budget"])
def test_an_odd_id_is_an_unknown_node(root: Caller, node_id: str, verb: str) -> None:
    method = {"/approve": "POST", "/vram-budget": "DELETE"}.get(verb, "GET")
    assert root.send(method, f"/api/nodes/{node_id}{verb}").status_code == 404


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_trailing_slash_makes_no_difference(root: Caller, slash: str) -> None:
    node = make_node()
    assert root.get(f"/api/nodes{slash}").status_code == 200
    assert root.get(f"/api/nodes/{node.pk}{slash}").status_code == 200
    assert root.post(f"/api/nodes/{node.pk}/cordon{slash}").status_code == 200
    assert BackendNode.objects.get().cordoned_by == "root"
