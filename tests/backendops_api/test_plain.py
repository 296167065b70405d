"""The paths that LocalAI's own clients use; the key sets are those of its Go structs."""

from typing import Any

import pytest

from backendops.models import NodeBackend, Operation
from backendops.states import Verb
from nodes.models import BackendNode
from tests.api.clients import Caller, read
from tests.backendops_api.conftest import Galleries
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db

SYSTEM = {"Name", "RunFile", "IsMeta", "IsSystem", "Metadata"}
SYSTEM_MORE = {"upgrade_available", "available_version", "nodes"}
METADATA = {"name", "gallery_url", "installed_at", "version", "uri", "digest"}
REFERENCE = {"node_id", "node_name", "node_status"}
REFERENCE_MORE = {"version", "digest", "uri", "installed_at"}
AVAILABLE = {
    *("name", "description", "license", "urls", "icon", "tags", "version", "gallery"),
    *("installed", "alias", "uri", "capabilities"),
}
KNOWN = {"name", "modality", "auto_detect", "description", "installed"}
FULL: dict[str, Any] = {
    "name": "llama-cpp",
    "version": "2",
    "description": "LLMs",
    "license": "mit",
    "urls": ["https://example.org"],
    "icon": "https://example.org/i.png",
    "tags": ["llm"],
    "alias": "llama",
    "uri": "oci://x",
    "capabilities": {"default": "cpu-llama-cpp"},
}


def has(node: BackendNode, name: str, **more: Any) -> NodeBackend:
    columns = {"version": "1", "first_seen_at": NOW, "observed_at": NOW, **more}
    return NodeBackend.objects.create(node=node, name=name, **columns)


def test_backends_lists_what_is_installed_and_where(root: Caller, galleries: Galleries) -> None:
    galleries(main=[FULL])
    node = make_node("a")
    has(node, "llama-cpp", digest="sha256:a", uri="oci://x", gallery_url="g", installed_at="t")
    has(make_node("b"), "llama-cpp")
    has(node, "bare", version="", is_system=True)
    bare, full = read(root.get("/backends"))
    assert set(full) == SYSTEM | SYSTEM_MORE
    assert set(full["Metadata"]) == METADATA
    assert [set(one) for one in full["nodes"]] == [
        REFERENCE | REFERENCE_MORE,
        REFERENCE | {"version"},
    ]
    assert [one["node_name"] for one in full["nodes"]] == ["a", "b"]
    assert (full["upgrade_available"], full["available_version"]) == (True, "2")
    assert set(bare) == SYSTEM | {"nodes"}
    assert (bare["Name"], bare["IsSystem"], bare["Metadata"]) == ("bare", True, {"name": "bare"})


def test_available_lists_every_gallery_entry(root: Caller, galleries: Galleries) -> None:
    galleries(main=[FULL, {"name": "piper"}])
    has(make_node(), "llama-cpp")
    full, small = read(root.get("/backends/available"))
    assert set(full) == AVAILABLE
    assert {key: full[key] for key in FULL} == FULL
    assert full["gallery"]["name"] == "main"
    assert set(full["gallery"]) == {"url", "name"}
    assert set(small) == {"name", "gallery"}  # Go leaves out what is empty, and false


def test_known_lists_every_name_once(root: Caller, galleries: Galleries) -> None:
    galleries(main=[FULL], other=[{"name": "piper"}])
    has(make_node(), "llama-cpp")
    has(make_node("b"), "homemade")
    told = read(root.get("/backends/known"))
    assert [(one["name"], one["installed"]) for one in told] == [
        ("homemade", True),
        ("llama-cpp", True),
        ("piper", False),
    ]
    assert set(told[1]) == KNOWN
    assert set(told[2]) == KNOWN - {"description"}


def test_a_delete_that_takes_longer_is_a_job(root: Caller) -> None:
    has(make_node(), "llama-cpp")
    reply = root.post("/api/backends/system/delete/llama-cpp")
    assert reply.status_code == 202, reply.content
    operation = Operation.objects.get()
    assert (operation.verb, str(operation.pk)) == (Verb.DELETE, read(reply)["jobID"])
