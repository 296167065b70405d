from nodes.models import BackendNode, ClusterEvent, JoinToken
from tests.api.clients import Caller, Worker, read


def issue(root: Caller, name: str = "berlin", **terms: object) -> tuple[int, str]:
    reply = root.post("/api/join-tokens", {"name": name, **terms})
    assert reply.status_code == 201, reply.content
    return read(reply)["token"]["id"], read(reply)["secret"]


def test_a_secret_is_shown_once_and_only_its_digest_is_kept(root: Caller) -> None:
    _, secret = issue(root)
    assert secret not in root.get("/api/join-tokens").content.decode()
    assert secret not in str(JoinToken.objects.values().get())
    assert secret not in str(list(ClusterEvent.objects.values()))
    assert "digest" not in read(root.get("/api/join-tokens"))[0]


def test_the_worker_gets_what_its_token_promises(root: Caller) -> None:
    _, secret = issue(
        root, labels={"site": "berlin"}, auto_approve=True, max_nodes=1, allowed_types=["backend"]
    )
    worker = Worker(secret)
    assert read(worker.register())["status"] == "healthy"
    assert read(root.get(f"/api/nodes/{worker.joined()}/labels"))["site"] == "berlin"
    assert worker.register(name="gpu-b").status_code == 403
    assert worker.register(name="gpu-c", node_type="agent").status_code == 403
    assert read(root.get("/api/join-tokens"))[0]["node_count"] == 1


def test_a_one_machine_token_is_that_machines_identity(root: Caller) -> None:
    _, secret = issue(root, one_machine=True)
    assert Worker(secret).register(name="gpu-a").status_code == 201
    assert Worker(secret).register(name="gpu-b").status_code == 403
    assert read(root.get("/api/join-tokens"))[0]["bound_name"] == "gpu-a"


def test_who_holds_a_revoked_token_is_out_at_once(root: Caller) -> None:
    number, secret = issue(root)
    worker = Worker(secret)
    node = worker.joined()
    for _ in range(2):
        assert root.post(f"/api/join-tokens/{number}/revoke").status_code == 200
    for reply in (worker.register(), worker.post(f"/api/node/{node}/heartbeat")):
        assert reply.status_code == 401
        assert isinstance(read(reply)["error"], str)
    assert ClusterEvent.objects.filter(kind="token.revoked").count() == 1
    assert BackendNode.objects.get().retired_at is None


def test_two_tokens_cannot_share_a_name(root: Caller) -> None:
    issue(root)
    reply = root.post("/api/join-tokens", {"name": "berlin"})
    assert (reply.status_code, read(reply)["code"]) == (409, "conflict")
    assert JoinToken.objects.count() == 1
