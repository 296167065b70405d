from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from nodes.models import BackendNode, ClusterEvent, JoinToken
from nodes.services import events
from tests.api.clients import Caller, Worker, operator, read
from tests.factories import NOW, make_node, make_token

NODE = f"/api/nodes/{UUID(int=1)}"
VERBS = [
    ("POST", f"{NODE}/approve", "approve_backendnode"),
    ("POST", f"{NODE}/drain", "drain_backendnode"),
    ("POST", f"{NODE}/resume", "drain_backendnode"),
    ("POST", f"{NODE}/stop-worker", "drain_backendnode"),
    ("POST", f"{NODE}/cordon", "cordon_backendnode"),
    ("POST", f"{NODE}/uncordon", "cordon_backendnode"),
    ("POST", f"{NODE}/release", "cordon_backendnode"),
    ("POST", f"{NODE}/retire", "retire_backendnode"),
    ("POST", f"{NODE}/readmit", "retire_backendnode"),
    ("POST", f"{NODE}/release-token", "retire_backendnode"),
    ("DELETE", NODE, "retire_backendnode"),
    ("PUT", f"{NODE}/labels", "label_backendnode"),
    ("PATCH", f"{NODE}/labels", "label_backendnode"),
    ("DELETE", f"{NODE}/labels/tier", "label_backendnode"),
    ("PUT", f"{NODE}/taints", "label_backendnode"),
    ("PUT", f"{NODE}/max-replicas-per-model", "label_backendnode"),
    ("DELETE", f"{NODE}/max-replicas-per-model", "label_backendnode"),
    ("PUT", f"{NODE}/vram-budget", "label_backendnode"),
    ("DELETE", f"{NODE}/vram-budget", "label_backendnode"),
    ("POST", "/api/join-tokens", "add_jointoken"),
    ("POST", "/api/join-tokens/1/revoke", "change_jointoken"),
    ("POST", "/api/events/1/acknowledge", "change_clusterevent"),
]
READS = [
    ("/api/nodes", "view_backendnode"),
    (NODE, "view_backendnode"),
    (f"{NODE}/labels", "view_backendnode"),
    (f"{NODE}/taints", "view_backendnode"),
    (f"{NODE}/models", "view_nodemodel"),
    ("/api/nodes/models", "view_nodemodel"),
    ("/api/cluster", "view_backendnode"),
    ("/api/join-tokens", "view_jointoken"),
    ("/api/events", "view_clusterevent"),
]
VIEWS = tuple({permission for _, permission in READS})
BODIES: dict[str, object] = {
    f"{NODE}/taints": [],
    f"{NODE}/max-replicas-per-model": {"value": 2},
    f"{NODE}/vram-budget": {"value": "80%"},
    "/api/join-tokens": {"name": "one"},
}


@pytest.fixture(autouse=True)
def node(db: None) -> BackendNode:
    return make_node(id=UUID(int=1))


def facts() -> list[object]:
    tables = (BackendNode, JoinToken, ClusterEvent)
    return [list(table.objects.order_by("pk").values()) for table in tables]


@pytest.mark.parametrize(("method", "path", "_permission"), VERBS)
def test_a_viewer_changes_nothing(method: str, path: str, _permission: str) -> None:
    viewer, before = operator(*VIEWS), facts()
    reply = viewer.send(method, path, BODIES.get(path, {}))
    assert (reply.status_code, read(reply)["code"]) == (403, "permission_denied")
    assert read(reply)["error"]["type"] == "authorization_error"
    assert facts() == before


@pytest.mark.parametrize(("method", "path", "permission"), VERBS)
def test_the_verbs_own_permission_is_enough(method: str, path: str, permission: str) -> None:
    make_token(pk=1)
    events.record("node.registered", actor="tests", now=NOW)
    ClusterEvent.objects.update(id=1)
    reply = operator(permission).send(method, path, BODIES.get(path, {}))
    assert reply.status_code in (200, 201, 204, 409), reply.content  # 409: may, but cannot now


@pytest.mark.parametrize(("path", "permission"), READS)
def test_reading_takes_the_permission_to_view(path: str, permission: str) -> None:
    others = [view for view in VIEWS if view != permission]
    assert operator(*others).get(path).status_code == 403
    assert operator(permission).get(path).status_code == 200
    assert operator(permission).send("HEAD", path).status_code == 200


@pytest.mark.parametrize(("method", "path"), [verb[:2] for verb in VERBS])
def test_nobody_in_particular_changes_nothing(method: str, path: str) -> None:
    before = facts()
    reply = Caller("").send(method, path, BODIES.get(path, {}))
    assert reply.status_code == 401
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert facts() == before


@pytest.mark.parametrize("path", [path for path, _ in READS])
def test_nobody_in_particular_sees_nothing(path: str) -> None:
    assert Caller("").get(path).status_code == 401
    assert Caller("cm_made-up").get(path).status_code == 401


def test_a_registration_token_is_no_key_to_the_operators_api(worker: Worker) -> None:
    assert worker.get("/api/nodes").status_code == 401


def test_a_method_the_view_does_not_name_is_refused_even_to_the_mighty(root: Caller) -> None:
    for method in ("PUT", "PATCH", "OPTIONS"):
        assert root.send(method, "/api/nodes", {}).status_code in (403, 405)


def test_a_browser_session_needs_its_csrf_token() -> None:
    user = User.objects.create_user("clicker")
    user.user_permissions.set(Permission.objects.filter(codename="cordon_backendnode"))
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    forged = browser.post(f"{NODE}/cordon", {"reason": "x"}, content_type="application/json")
    assert forged.status_code == 403
    assert BackendNode.objects.get().cordoned_at is None
    browser.cookies["csrftoken"] = "a" * 32
    meant = browser.post(
        f"{NODE}/cordon",
        {"reason": "noisy"},
        content_type="application/json",
        headers={"X-CSRFToken": "a" * 32},
    )
    assert meant.status_code == 200
    assert BackendNode.objects.get().cordon_reason == "noisy"
