import json
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from backendops.models import NodeBackend, NodeInventory, Operation, PendingBackendOp
from backendops.states import OpState, Verb
from nodes.models import BackendNode, ClusterEvent, NodeLabel
from nodes.states import LabelSource, Liveness, NodeType
from tests.api.clients import Caller, read
from tests.backendops_api.conftest import Galleries
from tests.factories import NOW, make_node, make_op, make_pending

pytestmark = pytest.mark.django_db
META = [
    {"name": "llama-cpp", "capabilities": {"default": "cpu-llama", "nvidia": "cuda-llama"}},
    {"name": "cuda-llama", "uri": "quay.io/example/cuda-llama"},
    {"name": "cpu-llama", "uri": "quay.io/example/cpu-llama"},
]


def on(node: BackendNode, verb: str) -> str:
    return f"/api/nodes/{node.pk}/backends/{verb}"


def has(node: BackendNode, name: str, **more: Any) -> NodeBackend:
    NodeInventory.objects.update_or_create(node=node, defaults={"observed_at": NOW})
    return NodeBackend.objects.create(
        node=node, name=name, first_seen_at=NOW, observed_at=NOW, **more
    )


def test_row_1_an_install_on_a_node_is_accepted_and_nothing_is_sent(
    root: Caller, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    node = make_node()
    with django_capture_on_commit_callbacks(execute=True):
        reply = root.post(on(node, "install"), {"backend": "llama-cpp", "reason": "new model"})
    body = read(reply)
    operation = Operation.objects.get()
    assert reply.status_code == 202
    assert body["jobID"] == str(operation.pk)
    assert body["statusUrl"] == f"/api/backends/job/{operation.pk}"
    assert operation.ops.get().state == OpState.QUEUED
    assert (operation.requested_by, operation.reason) == ("root", "new model")
    assert ClusterEvent.objects.get().kind == "operation.requested"
    assert queued == [("backendops.dispatch",)]


def test_row_2_neither_backend_nor_uri_is_refused_and_nothing_is_written(root: Caller) -> None:
    reply = root.post(on(make_node(), "install"), {})
    assert (reply.status_code, read(reply)["error"]["type"]) == (400, "node_error")
    assert "backend is required" in read(reply)["detail"]
    assert not Operation.objects.exists()


def test_row_3_unknown_agent_and_pending_nodes_are_refused(root: Caller) -> None:
    body = {"backend": "llama-cpp"}
    assert root.post(f"/api/nodes/{uuid4()}/backends/install", body).status_code == 404
    assert root.post("/api/nodes/not-an-id/backends/install", body).status_code == 404
    agent = make_node("agent", node_type=NodeType.AGENT, address="")
    for node in (agent, make_pending()):
        reply = root.post(on(node, "install"), body)
        assert (reply.status_code, read(reply)["code"]) == (409, "no_eligible_node")
        assert node.name in read(reply)["detail"]
    assert not Operation.objects.exists()


def test_row_4_the_same_backend_on_two_nodes_is_two_jobs(root: Caller) -> None:
    jobs = {
        read(root.post(on(make_node(name), "install"), {"backend": "x"}))["jobID"]
        for name in ("one", "two")
    }
    assert len(jobs) == 2
    assert {op.node.name for op in PendingBackendOp.objects.all()} == {"one", "two"}


def test_row_6_a_second_post_returns_the_same_job(root: Caller) -> None:
    node = make_node()
    first = read(root.post(on(node, "install"), {"backend": "x"}))
    second = read(root.post(on(node, "install"), {"backend": "x"}))
    assert (second["jobID"], second["created"]) == (first["jobID"], False)
    assert PendingBackendOp.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_row_7_twenty_equal_posts_at_once_make_one_op_and_name_one_job(
    root: Caller, queued: list[Any]
) -> None:
    node = make_node()
    jobs: list[str] = []

    def post() -> None:
        caller = Caller(root.secret)
        jobs.append(read(caller.post(on(node, "install"), {"backend": "x"}))["jobID"])
        connection.close()

    threads = [threading.Thread(target=post) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 20
    assert len(set(jobs)) == 1
    assert PendingBackendOp.objects.count() == 1


def test_row_8_a_delete_while_an_install_runs_is_refused_and_names_it(root: Caller) -> None:
    node = make_node()
    make_op(node, "x", state=OpState.RUNNING)
    reply = root.post(on(node, "delete"), {"backend": "x"})
    assert (reply.status_code, read(reply)["code"]) == (409, "blocked_by_operation")
    assert "install of x is running on gpu-1" in read(reply)["detail"]


def test_row_10_a_key_returns_the_same_job_and_refuses_another_wish(root: Caller) -> None:
    node = make_node()
    key = {"Idempotency-Key": "k-1"}
    first = root.post(on(node, "install"), {"backend": "x"}, **key)
    again = root.post(on(node, "install"), {"backend": "x"}, **key)
    other = root.post(on(node, "install"), {"backend": "y"}, **key)
    assert read(again)["jobID"] == read(first)["jobID"]
    assert (other.status_code, read(other)["code"]) == (422, "idempotency_key_reused")


def test_row_11_a_job_can_be_asked_about_at_once(root: Caller) -> None:
    placed = read(root.post(on(make_node(), "install"), {"backend": "x"}))
    job = read(root.get(placed["statusUrl"]))
    assert (job["queued"], job["processed"], job["galleryElementName"]) == (True, False, "x")


@pytest.mark.parametrize("job", [str(UUID(int=7)), "nonsense", "1"])
def test_row_12_an_unknown_job_is_not_found(root: Caller, job: str) -> None:
    for path in (f"/api/backends/job/{job}", f"/backends/jobs/{job}", f"/api/operations/{job}"):
        reply = root.get(path)
        assert (reply.status_code, read(reply)["code"]) == (404, "not_found")
        assert read(reply)["error"] == f"There is no operation {job}."


def test_row_15_a_fan_out_takes_offline_nodes_and_tells_whom_it_skips(root: Caller) -> None:
    make_node("up")
    make_node("away", liveness=Liveness.OFFLINE)
    make_pending("new")
    make_node("agent", node_type=NodeType.AGENT, address="")
    reply = root.post("/api/backends/install/llama-cpp")
    assert reply.status_code == 200
    assert [skip["name"] for skip in read(reply)["skipped"]] == ["new"]
    assert {op.node.name for op in PendingBackendOp.objects.all()} == {"up", "away"}


def test_row_16_no_eligible_node_is_a_refusal_and_no_success(root: Caller) -> None:
    for path in ("/api/backends/install/x", "/api/backends/upgrade/x", "/api/backends/delete/x"):
        assert root.post(path).status_code == 409
    assert not Operation.objects.exists()


def test_row_17_a_build_for_one_hardware_is_refused_on_every_way_to_all_nodes(
    root: Caller, galleries: Galleries
) -> None:
    galleries(main=META)
    make_node(capability="nvidia")
    everybody = {"verb": "install", "backend": "cuda-llama", "all": True}
    for path, body in (
        ("/api/backends/install/cuda-llama", {}),
        ("/api/backends/install/main@cuda-llama", {}),
        ("/backends/apply", {"id": "cuda-llama"}),
        ("/api/operations", everybody),
        ("/api/operations", {**everybody, "dry_run": True}),
    ):
        reply = root.post(path, body)
        told = read(reply)
        assert (reply.status_code, told["code"]) == (409, "concrete_backend_requires_target")
        assert (told["meta_alternative"], type(told["error"])) == ("llama-cpp", str)
    assert not Operation.objects.exists()


def test_a_node_the_build_does_not_fit_needs_a_word_more(
    root: Caller, galleries: Galleries
) -> None:
    galleries(main=META)
    node = make_node(capability="amd")
    assert root.post(on(node, "install"), {"backend": "cuda-llama"}).status_code == 409
    meant = {"backend": "cuda-llama", "despite_mismatch": True}
    assert root.post(on(node, "install"), meant).status_code == 202


def test_row_18_an_upgrade_is_for_nodes_that_have_it(root: Caller) -> None:
    one, two = make_node("one"), make_node("two")
    has(one, "llama-cpp")
    has(two, "other")
    root.post("/api/backends/upgrade/llama-cpp")
    assert [op.node.name for op in PendingBackendOp.objects.all()] == ["one"]
    assert root.post(on(two, "upgrade"), {"backend": "llama-cpp"}).status_code == 409


@pytest.mark.parametrize("verb", ["install", "upgrade", "reinstall", "stop"])
def test_every_verb_is_written_down_as_itself(root: Caller, verb: str) -> None:
    node = make_node()
    has(node, "x")
    assert root.post(on(node, verb), {"backend": "x"}).status_code == 202
    assert PendingBackendOp.objects.get().verb == verb


GALLERIES = [{"name": "own", "url": "https://example.org/index.yaml"}]


@pytest.mark.parametrize("given", [GALLERIES, json.dumps(GALLERIES)])
def test_galleries_come_as_a_list_or_as_that_list_in_a_string(root: Caller, given: object) -> None:
    reply = root.post(on(make_node(), "install"), {"backend": "x", "backend_galleries": given})
    assert reply.status_code == 202
    assert PendingBackendOp.objects.get().galleries == GALLERIES


@pytest.mark.parametrize("given", [7, "nonsense", "{}", "[1]", [1], [{"name": "x"}], None])
def test_galleries_that_make_no_sense_are_refused(root: Caller, given: object) -> None:
    reply = root.post(on(make_node(), "install"), {"backend": "x", "backend_galleries": given})
    assert reply.status_code == 400
    assert not Operation.objects.exists()


def test_a_uri_with_name_and_alias_is_kept_as_it_was_given(root: Caller) -> None:
    make_node()
    uri = {"uri": "https://example.org/x.tar.gz", "name": "mine", "alias": "also"}
    assert root.post("/api/backends/install-external", uri).status_code == 200
    op = PendingBackendOp.objects.get()
    assert (op.backend, op.uri, op.name, op.alias) == ("mine", *uri.values())
    assert root.post("/api/backends/install-external", {"name": "x"}).status_code == 400


def test_applying_with_force_downloads_again_only_where_there_is_something(root: Caller) -> None:
    node = make_node()
    first = read(root.post("/backends/apply", {"id": "x", "force": True}))
    assert Operation.objects.get().verb == Verb.INSTALL
    assert first["StatusURL"].endswith(first["ID"])
    PendingBackendOp.objects.update(state=OpState.SUCCEEDED, finished_at=NOW)
    has(node, "x")
    root.post("/backends/apply", {"id": "x", "force": True})
    assert Operation.objects.first().verb == Verb.REINSTALL  # type: ignore[union-attr]


class TestBulk:
    def test_nodes_are_named_by_name_or_id(self, root: Caller) -> None:
        one, two = make_node("one"), make_node("two")
        make_node("three")
        asked = {"verb": "install", "backend": "x", "nodes": ["one", str(two.pk)]}
        assert root.post("/api/operations", asked).status_code == 202
        assert {op.node for op in PendingBackendOp.objects.all()} == {one, two}

    def test_a_selector_picks_them(self, root: Caller) -> None:
        one = make_node("one")
        NodeLabel.objects.create(node=one, key="tier", value="fast", source=LabelSource.ADMIN)
        make_node("two")
        body = {"verb": "install", "backend": "x", "selector": "tier=fast"}
        assert root.post("/api/operations", body).status_code == 202
        assert [op.node.name for op in PendingBackendOp.objects.all()] == ["one"]

    def test_a_dry_run_tells_who_and_who_not_and_writes_nothing(self, root: Caller) -> None:
        idle, queued, busy = make_node("idle"), make_node("queued"), make_node("busy")
        make_pending("new")
        make_op(queued, "x", verb=Verb.UPGRADE)
        make_op(busy, "x", verb=Verb.UPGRADE, state=OpState.RUNNING)
        joined = make_op(make_node("joined"), "x")
        events = ClusterEvent.objects.count()
        body = {"verb": "install", "backend": "x", "all": True, "dry_run": True}
        reply = root.post("/api/operations", body)
        told = read(reply)
        assert reply.status_code == 200
        assert {node["name"]: node["what"] for node in told["nodes"]} == {
            idle.name: "starts",
            queued.name: "replaces",
            joined.node.name: "joins",
        }
        assert {skip["name"] for skip in told["skipped"]} == {"new", "busy"}
        assert all(skip["why"] for skip in told["skipped"])
        assert not Operation.objects.exists()
        assert (PendingBackendOp.objects.count(), ClusterEvent.objects.count()) == (3, events)

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"nodes": ["one"], "all": True},
            {"nodes": ["nobody"]},
            {"selector": "tier in"},
            {"all": "perhaps"},
            {"verb": "explode", "all": True},
            {"backend": "", "all": True},
            {"backend": "nowhere@x", "all": True},
            {"backend": "x\u0000", "all": True},
            {"backend": "x" * 300, "all": True},
            {"verb": "delete", "uri": "https://example.org", "all": True},
            {"name": "without-a-uri", "all": True},
            {"nodes": "one"},
            {"nodes": [7]},
        ],
    )
    def test_what_makes_no_sense_is_refused_in_a_sentence(
        self, root: Caller, wrong: dict[str, Any]
    ) -> None:
        make_node("one")
        reply = root.post("/api/operations", {"verb": "install", "backend": "x", **wrong})
        assert reply.status_code in (400, 404)
        assert read(reply)["error"] == read(reply)["detail"] != ""
        assert not Operation.objects.exists()
