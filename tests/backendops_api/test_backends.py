from typing import Any

import pytest
from pytest_django import Settings

from backendops.models import NodeBackend, Operation, PendingBackendOp
from backendops.services import upgrades
from backendops.states import OpState, Verb
from nodes.models import BackendNode
from nodes.states import Liveness
from tests.api.clients import Caller, read
from tests.backendops_api.conftest import Galleries, publish
from tests.factories import NOW, make_node, make_op, make_operation, make_pending

pytestmark = pytest.mark.django_db
ENTRIES = [
    {"name": "llama-cpp", "version": "2", "license": "mit", "tags": ["llm"], "description": "LLMs"},
    {"name": "whisper", "version": "1", "license": "apache", "tags": ["audio"]},
    {"name": "piper-development", "tags": ["audio", "tts"]},
]


def has(node: BackendNode, name: str, version: str = "1", **more: Any) -> NodeBackend:
    return NodeBackend.objects.create(
        node=node, name=name, version=version, first_seen_at=NOW, observed_at=NOW, **more
    )


def names(root: Caller, query: str = "") -> list[str]:
    reply = root.get(f"/api/backends?{query}")
    assert reply.status_code == 200, reply.content
    return [entry["name"] for entry in read(reply)["backends"]]


def test_the_catalog_is_searched_sorted_and_paged(root: Caller, galleries: Galleries) -> None:
    galleries(main=ENTRIES)
    has(make_node(), "whisper")
    assert names(root) == ["llama-cpp", "piper-development", "whisper"]
    assert names(root, "term=LLM") == ["llama-cpp"]
    assert names(root, "tag=audio") == ["piper-development", "whisper"]
    assert names(root, "sort=name&order=desc")[0] == "whisper"
    assert names(root, "sort=status")[0] == "whisper"
    assert names(root, "sort=license") == ["piper-development", "whisper", "llama-cpp"]
    page = read(root.get("/api/backends?items=2&page=2"))
    assert [entry["name"] for entry in page["backends"]] == ["whisper"]
    assert (page["totalPages"], page["currentPage"], page["nextPage"]) == (2, 2, 2)
    assert (page["availableBackends"], page["installedBackends"]) == (3, 1)
    assert page["allTags"] == ["audio", "llm", "tts"]


def test_an_entry_tells_where_it_is_installed_and_what_is_being_done(
    root: Caller, galleries: Galleries
) -> None:
    galleries(main=ENTRIES)
    node = make_node()
    has(node, "whisper", version="1")
    operation = make_operation(
        make_op(node, "whisper", verb=Verb.DELETE), backend="whisper", verb=Verb.DELETE
    )
    [entry] = read(root.get("/api/backends?term=whisper"))["backends"]
    assert (entry["id"], entry["installed"], entry["gallery"]) == ("main@whisper", True, "main")
    assert (entry["jobID"], entry["isDeletion"]) == (str(operation.pk), True)
    assert [place["node_name"] for place in entry["nodes"]] == ["gpu-1"]


def test_a_gallery_that_could_not_be_read_says_why(root: Caller, galleries: Galleries) -> None:
    galleries(main=ENTRIES, bad={"not": "a list"})
    told = {one["name"]: one for one in read(root.get("/backends/galleries"))}
    assert told["main"]["error"] == ""
    assert "not a YAML list" in told["bad"]["error"]
    assert told["bad"]["checked_at"] is None


@pytest.mark.parametrize("query", ["page=0", "items=x", "sort=size", "order=up", "term=%00"])
def test_a_look_that_means_nothing_is_refused(root: Caller, query: str) -> None:
    assert root.get(f"/api/backends?{query}").status_code == 400


def test_upgrades_are_told_in_localais_shape(root: Caller, galleries: Galleries) -> None:
    galleries(main=ENTRIES)
    has(make_node("a"), "llama-cpp", "1")
    has(make_node("b"), "llama-cpp", "1")
    has(make_node("c"), "llama-cpp", "2")
    has(make_node("d", retired_at=NOW, retired_by="ada"), "llama-cpp", "0")
    for path in ("/api/backends/upgrades", "/backends/upgrades"):
        [(name, told)] = read(root.get(path)).items()
        assert name == told["backend_name"] == "llama-cpp"
        assert (told["installed_version"], told["available_version"]) == ("1", "2")
        assert [drift["node_name"] for drift in told["node_drift"]] == ["c"]
        assert [node["node_name"] for node in told["nodes"]] == ["a", "b"]


def test_without_galleries_there_is_nothing_to_upgrade_to(root: Caller) -> None:
    has(make_node(), "llama-cpp")
    assert read(root.get("/api/backends/upgrades")) == {}


def test_row_59_an_upgrade_is_no_longer_offered_once_the_node_tells_the_new_version(
    root: Caller, galleries: Galleries
) -> None:
    galleries(main=ENTRIES)
    row = has(make_node(), "llama-cpp", "1")
    assert list(upgrades.available()) == ["llama-cpp"]
    NodeBackend.objects.filter(pk=row.pk).update(version="2")
    assert read(root.get("/api/backends/upgrades")) == {}


def test_a_check_is_queued_and_what_is_known_is_answered(
    root: Caller, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        assert read(root.post("/api/backends/upgrades/check")) == {}
    assert queued == [("backendops.check_upgrades",)]


@pytest.fixture
def outdated(galleries: Galleries) -> None:
    galleries(main=ENTRIES)
    has(make_node("a"), "llama-cpp", "1")
    has(make_node("away", liveness=Liveness.OFFLINE), "llama-cpp", "1")
    has(make_pending("new"), "llama-cpp", "1")
    has(make_node("current"), "llama-cpp", "2")
    has(make_node("b"), "whisper", "0")


def test_upgrade_all_shows_first_what_it_would_do(root: Caller, outdated: None) -> None:
    told = read(root.post("/api/backends/upgrade-all", {"dry_run": True}))["upgrades"]
    assert {step["backend"]: [node["name"] for node in step["nodes"]] for step in told} == {
        "llama-cpp": ["a", "away"],
        "whisper": ["b"],
    }
    assert [skip["why"] for step in told for skip in step["skipped"]] == [
        "new is not approved yet."
    ]
    assert not Operation.objects.exists()


def test_upgrade_all_orders_them_and_one_refusal_stops_no_other(
    root: Caller, outdated: None, settings: Settings
) -> None:
    publish(settings)
    busy = BackendNode.objects.get(name="b")
    make_op(busy, "whisper", verb=Verb.DELETE, state=OpState.RUNNING)
    told = read(root.post("/api/backends/upgrade-all", {"reason": "monthly"}))["upgrades"]
    by_name = {step["backend"]: step for step in told}
    operation = Operation.objects.get()
    assert by_name["llama-cpp"]["jobID"] == str(operation.pk)
    assert by_name["whisper"]["jobID"] is None
    assert "delete of whisper is running on b" in by_name["whisper"]["error"]
    assert (operation.verb, operation.reason) == (Verb.UPGRADE, "monthly")
    assert {op.node.name for op in operation.ops.all()} == {"a", "away"}
    assert operation.galleries[0]["name"] == "main"


def test_upgrade_all_takes_only_the_named_ones(root: Caller, outdated: None) -> None:
    root.post("/api/backends/upgrade-all", {"backends": ["whisper"]})
    assert [op.node.name for op in PendingBackendOp.objects.all()] == ["b"]
