from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from nodes.models import ClusterEvent, NodeModel
from scheduling.api import urls
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig, RouteLease
from tests.api.clients import Caller, operator, read
from tests.factories import NOW, make_job, make_model, make_node, make_replica, make_rule

NODE = f"/api/nodes/{UUID(int=1)}/models"
RULES, RULE = "/api/nodes/scheduling", "/api/nodes/scheduling/llama"
MODELS, MODEL = "/api/models", "/api/models/llama"
OPERATE, EDIT_RULE = "operate_model", "change_modelschedulingconfig"
ADD, EDIT, DELETE = "add_modelloadinfo", "change_modelloadinfo", "delete_modelloadinfo"
ROUTE, LEASE = "request_route", UUID(int=2)
DEFINITION = {"name": "new", "backend": "reference"}
WRITES: list[tuple[str, str, object, str]] = [
    ("POST", RULES, {"model_name": "llama"}, EDIT_RULE),
    ("DELETE", RULE, b"", EDIT_RULE),
    ("POST", MODELS, DEFINITION, ADD),
    ("PUT", MODEL, {"backend": "other"}, EDIT),
    ("PATCH", MODEL, {"backend": "other"}, EDIT),
    ("DELETE", f"{MODEL}?force=true", b"", DELETE),
    ("POST", f"{MODEL}/load", {}, OPERATE),
    ("POST", f"{MODEL}/unload", {}, OPERATE),
    ("POST", f"{MODEL}/move", {"node": "gpu-1", "to": "gpu-2"}, OPERATE),
    ("POST", f"{NODE}/unload", {"model_name": "llama"}, OPERATE),
    ("POST", f"{NODE}/delete", {"model_name": "llama"}, OPERATE),
    ("POST", "/api/scheduling/plan", {}, "view_modelschedulingconfig"),
    ("POST", "/api/route", {"model": "llama"}, ROUTE),
    ("POST", "/api/route/release", {"leases": [str(LEASE)]}, ROUTE),
    ("DELETE", f"/api/route/{LEASE}", b"", ROUTE),
    ("POST", f"/api/route/{LEASE}/renew", {}, ROUTE),
    ("POST", f"/api/route/{LEASE}/failure", {"kind": "overloaded"}, ROUTE),
]
READS = [
    (RULES, "view_modelschedulingconfig"),
    (RULE, "view_modelschedulingconfig"),
    (MODELS, "view_modelloadinfo"),
    (MODEL, "view_modelloadinfo"),
    (f"{MODEL}/replicas", "view_nodemodel"),
    (f"{MODEL}/jobs", "view_loadjob"),
    (f"{MODEL}/decisions", "view_placementdecision"),
    (f"{MODEL}/why", "view_placementdecision"),
    ("/api/scheduling/jobs", "view_loadjob"),
    ("/api/scheduling/capacity?label=tier", "view_backendnode"),
    ("/api/scheduling/why?model=llama", "view_modelschedulingconfig"),
]
STATUS = f"{MODEL}/load-status"
EVERY = {OPERATE, EDIT_RULE, ADD, EDIT, DELETE, ROUTE, *(permission for _, permission in READS)}


@pytest.fixture(autouse=True)
def fleet(no_broker: None) -> None:
    node = make_node(id=UUID(int=1))
    make_node("gpu-2")
    make_model()
    make_rule()
    make_replica(node, config_revision="r1")
    replica = make_replica(node, "qwen", in_flight=1)
    RouteLease.objects.create(
        id=LEASE,
        replica=replica,
        holder="tests",
        granted_at=NOW,
        expires_at=NOW + timedelta(days=1),
    )
    make_job(node, index=1)


def facts() -> list[object]:
    tables = (
        ModelLoadInfo,
        ModelSchedulingConfig,
        NodeModel,
        LoadJob,
        RouteLease,
        ClusterEvent,
    )
    return [list(table.objects.order_by("pk").values()) for table in tables]


@pytest.mark.parametrize(("method", "path", "body", "permission"), WRITES)
def test_every_other_permission_together_does_not_allow_it(
    method: str, path: str, body: object, permission: str
) -> None:
    before = facts()
    reply = operator(*(EVERY - {permission})).send(method, path, body)
    assert (reply.status_code, read(reply)["code"]) == (403, "permission_denied")
    assert facts() == before


@pytest.mark.parametrize(("method", "path", "body", "permission"), WRITES)
def test_the_verbs_own_permission_is_enough(
    method: str, path: str, body: object, permission: str
) -> None:
    reply = operator(permission).send(method, path, body)
    assert reply.status_code in (200, 201, 202, 204), reply.content


def test_an_import_may_edit_and_needs_both() -> None:
    body = {"models": [DEFINITION]}
    assert operator(ADD).post(f"{MODELS}/import", body).status_code == 403
    assert operator(EDIT).post(f"{MODELS}/import", body).status_code == 403
    assert operator(ADD, EDIT).post(f"{MODELS}/import", body).status_code == 200


@pytest.mark.parametrize(("path", "permission"), READS)
def test_reading_takes_the_permission_to_view(path: str, permission: str) -> None:
    assert operator(*(EVERY - {permission})).get(path).status_code == 403
    assert operator(permission).get(path).status_code == 200


@pytest.mark.parametrize("permission", ["view_loadjob", ROUTE])
def test_who_sees_loads_or_waits_for_one_may_ask_how_far_it_is(permission: str) -> None:
    assert operator(*(EVERY - {"view_loadjob", ROUTE})).get(STATUS).status_code == 403
    assert operator(permission).get(STATUS).status_code == 200


def test_nobody_in_particular_gets_nothing() -> None:
    before = facts()
    asked = [("GET", path, b"") for path in (STATUS, *(path for path, _ in READS))]
    for method, path, body in [*asked, *((m, p, b) for m, p, b, _ in WRITES)]:
        for secret in ("", "cm_made-up"):
            assert Caller(secret).send(method, path, body).status_code == 401, (method, path)
    assert facts() == before


def test_a_browser_session_needs_its_csrf_token() -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("clicker"))
    before = facts()
    assert browser.post(f"{MODEL}/unload", content_type="application/json").status_code == 403
    assert facts() == before


def test_every_path_is_in_these_lists() -> None:
    listed = {STATUS, *(path.partition("?")[0] for path, _ in READS)}
    listed |= {path.partition("?")[0] for _, path, _, _ in WRITES} | {f"{MODELS}/import"}
    for route in urls.urlpatterns:
        example = f"/api/{route.pattern}".replace("<str:node_id>", str(UUID(int=1)))
        example = example.replace("<str:lease_id>", str(LEASE))
        for variable in ("<path:name>", "<path:model_name>"):
            example = example.replace(variable, "llama")
        assert example.rstrip("/") in listed, example
