from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from backendops.api import urls
from backendops.models import NodeBackend, NodeInventory, Operation, PendingBackendOp
from backendops.states import OpState
from nodes.models import ClusterEvent
from tests.api.clients import Caller, operator, read
from tests.factories import NOW, make_node, make_op, make_operation

NODE = f"/api/nodes/{UUID(int=1)}/backends"
JOB = f"/api/operations/{UUID(int=2)}"
ORDER = "request_operation"
WRITES = [
    (f"{NODE}/install", ORDER),
    (f"{NODE}/upgrade", ORDER),
    (f"{NODE}/reinstall", ORDER),
    (f"{NODE}/delete", ORDER),
    (f"{NODE}/stop", ORDER),
    ("/api/operations", ORDER),
    (f"{JOB}/cancel", "cancel_operation"),
    (f"{JOB}/pause", "cancel_operation"),
    (f"{JOB}/dismiss", "acknowledge_operation"),
    (f"{JOB}/retry", ORDER),
    ("/api/operations/dead-letters/redrive", ORDER),
    ("/api/operations/dead-letters/discard", "acknowledge_operation"),
    ("/api/backends/install/llama-cpp", ORDER),
    ("/api/backends/install-external", ORDER),
    ("/api/backends/delete/llama-cpp", ORDER),
    ("/api/backends/upgrade/llama-cpp", ORDER),
    ("/api/backends/upgrade-all", ORDER),
    ("/api/backends/upgrades/check", ORDER),
    ("/api/backends/system/delete/llama-cpp", ORDER),
    ("/backends/apply", ORDER),
    ("/backends/delete/llama-cpp", ORDER),
    ("/backends/upgrade/llama-cpp", ORDER),
    ("/backends/upgrades/check", ORDER),
]
READS = [
    (NODE, "view_nodebackend"),
    ("/api/operations", "view_operation"),
    (JOB, "view_operation"),
    (f"{JOB}/ops", "view_pendingbackendop"),
    ("/api/operations/history", "view_operation"),
    ("/api/operations/export", "view_operation"),
    ("/api/operations/events", "view_operation"),
    ("/api/operations/dead-letters", "view_pendingbackendop"),
    (f"/api/backends/job/{UUID(int=2)}", "view_operation"),
    (f"/backends/jobs/{UUID(int=2)}", "view_operation"),
    ("/api/backends", "view_gallerybackend"),
    ("/api/backends/upgrades", "view_gallerybackend"),
    ("/backends/upgrades", "view_gallerybackend"),
    ("/backends/galleries", "view_gallerybackend"),
    ("/backends", "view_nodebackend"),
    ("/backends/available", "view_gallerybackend"),
    ("/backends/known", "view_gallerybackend"),
]
VIEWS = tuple({permission for _, permission in READS})
BODIES: dict[str, object] = {
    "/api/operations": {"verb": "install", "backend": "x", "all": True},
    "/api/operations/dead-letters/redrive": {"all": True},
    "/api/operations/dead-letters/discard": {"all": True, "reason": "sold"},
    "/api/backends/install-external": {"uri": "https://example.org/x.tar.gz"},
    "/backends/apply": {"id": "x"},
    "/api/backends/upgrade-all": {},
}


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    node = make_node(id=UUID(int=1))
    NodeInventory.objects.create(node=node, observed_at=NOW)
    NodeBackend.objects.create(node=node, name="llama-cpp", first_seen_at=NOW, observed_at=NOW)
    dead = make_op(node, "old", state=OpState.DEAD, finished_at=NOW)
    make_operation(dead, id=UUID(int=2), backend="old")


def body(path: str) -> object:
    return BODIES.get(path, {"backend": "llama-cpp"} if path.startswith(NODE) else {})


def facts() -> list[object]:
    tables = (Operation, PendingBackendOp, ClusterEvent)
    return [list(table.objects.order_by("pk").values()) for table in tables]


@pytest.mark.parametrize(("path", "permission"), WRITES)
def test_row_78_every_other_permission_together_does_not_allow_it(
    path: str, permission: str
) -> None:
    verbs = {ORDER, "cancel_operation", "acknowledge_operation"} - {permission}
    before = facts()
    reply = operator(*VIEWS, *verbs).post(path, body(path))
    assert (reply.status_code, read(reply)["code"]) == (403, "permission_denied")
    assert facts() == before


@pytest.mark.parametrize(("path", "permission"), WRITES)
def test_the_verbs_own_permission_is_enough(path: str, permission: str) -> None:
    reply = operator(permission).post(path, body(path))
    assert reply.status_code in (200, 202, 409), reply.content  # 409: may, but cannot now


@pytest.mark.parametrize(("path", "permission"), READS)
def test_reading_takes_the_permission_to_view(path: str, permission: str) -> None:
    others = [view for view in VIEWS if view != permission]
    assert operator(*others, ORDER).get(path).status_code == 403
    assert operator(permission).get(path).status_code == 200


@pytest.mark.parametrize("path", [path for path, _ in (*READS, *WRITES)])
def test_nobody_in_particular_gets_nothing(path: str) -> None:
    before = facts()
    for method in ("GET", "POST", "DELETE"):
        for secret in ("", "cm_made-up"):
            reply = Caller(secret).send(method, path, body(path))
            assert reply.status_code == 401, (method, path)
    assert facts() == before


@pytest.mark.parametrize("path", [path for path, _ in WRITES])
def test_row_77_a_get_changes_nothing(path: str, root: Caller) -> None:
    before = facts()
    root.get(path)
    assert facts() == before


def test_clearing_the_record_needs_the_permission_to_dismiss() -> None:
    assert operator(*VIEWS, ORDER).delete("/api/operations/history").status_code == 403
    refused = operator("acknowledge_operation").delete("/api/operations/history")
    assert refused.status_code == 409


def test_a_browser_session_needs_its_csrf_token() -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("clicker"))
    before = facts()
    forged = browser.post(f"{JOB}/dismiss", content_type="application/json")
    assert forged.status_code == 403
    assert facts() == before


def test_every_path_is_in_these_lists() -> None:
    served = {f"/api/{route.pattern}" for route in urls.api}
    served |= {f"/{route.pattern}" for route in urls.without_api}
    listed = {path for path, _ in (*READS, *WRITES)}
    for path in served:
        if path.endswith("/"):
            continue
        example = path.replace("<str:node_id>", str(UUID(int=1)))
        example = example.replace("<str:job_id>", str(UUID(int=2)))
        assert example.replace("<str:backend>", "llama-cpp") in listed, path
