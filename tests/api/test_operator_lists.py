from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from nodes.services import labels, taints
from nodes.states import TaintEffect
from nodes.taints import Taint
from tests.api.clients import Caller, read
from tests.factories import GIB, NOW, make_node, make_pending, make_replica


@pytest.fixture
def fleet(db: None) -> None:
    fast = make_node("a-fast", gpu_vendor="nvidia", total_vram=48 * GIB)
    slow = make_node("b-slow", gpu_vendor="amd", total_vram=8 * GIB)
    labels.merge_admin(fast, {"tier": "fast", "disk.gb": "900"}, by="tests", now=NOW)
    labels.merge_admin(slow, {"tier": "slow", "disk.gb": "80"}, by="tests", now=NOW)
    make_node("c-agent", node_type="agent", address="", liveness="unhealthy")
    make_node("d-draining", drain_requested_at=NOW, drain_requested_by="tests")
    make_node("e-offline", liveness="offline")
    make_pending("f-pending")
    make_node("g-retired", retired_at=NOW, retired_by="tests", liveness="offline")


def names(root: Caller, query: str = "") -> list[str]:
    reply = root.get(f"/api/nodes{query}")
    assert reply.status_code == 200, reply.content
    return [node["name"][0] for node in read(reply)]


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "abcdef"),
        ("?status=healthy", "ab"),
        ("?status=unhealthy", "c"),
        ("?status=draining", "d"),
        ("?status=offline", "e"),
        ("?status=pending", "f"),
        ("?status=retired", "g"),
        ("?type=agent", "c"),
        ("?gpu=nvidia", "a"),
        ("?gpu=none", "cdef"),
        ("?label=tier%3Dfast", "a"),
        ("?label=tier+in+(fast,slow)", "ab"),
        ("?label=tier!%3Dfast", "bcdef"),
        ("?label=!tier", "cdef"),
        ("?label=disk.gb%3E100", "a"),
        ("?label=tier,disk.gb%3C100", "b"),
        ("?search=SLOW", "b"),
        ("?search=%25", ""),
        ("?status=healthy&gpu=amd&label=tier", "b"),
        ("?ordering=-name", "fedcba"),
        ("?ordering=-total_vram&gpu=nvidia", "a"),
        ("?status=&label=&search=", "abcdef"),
    ],
)
def test_a_list_holds_what_was_asked_for(root: Caller, query: str, found: str) -> None:
    assert "".join(names(root, query)) == found


@pytest.mark.usefixtures("fleet")
def test_equals_are_ordered_by_name_whichever_the_order(root: Caller) -> None:
    assert names(root, "?ordering=created_at") == list("abcdef")
    assert names(root, "?ordering=-total_vram")[:2] == ["a", "b"]


@pytest.mark.usefixtures("fleet")
def test_a_page_tells_in_its_headers_how_much_there_is(root: Caller) -> None:
    reply = root.get("/api/nodes?page=2&page_size=4")
    assert [node["name"][0] for node in read(reply)] == ["e", "f"]
    assert (reply.headers["X-Total-Count"], reply.headers["X-Page"]) == ("6", "2")
    beyond = root.get("/api/nodes?page=999999999&page_size=500")
    assert (beyond.status_code, read(beyond)) == (200, [])
    assert "X-Total-Count" not in root.get("/api/nodes").headers


def test_a_page_without_a_size_is_still_a_page(root: Caller) -> None:
    for number in range(52):
        make_node(f"n{number:02}")
    assert len(names(root)) == 52
    assert len(names(root, "?page=2")) == 2


def test_a_node_comes_with_its_load_labels_and_taints(root: Caller) -> None:
    node = make_node()
    make_replica(node, in_flight=2)
    make_replica(node, index=1, in_flight=1)
    make_replica(node, "other", state="loading", in_flight=7)
    taint = Taint(key="gpu", value="broken", effect=TaintEffect.NO_SCHEDULE)
    taints.replace(node, [taint], by="tests", now=NOW)
    (shown,) = read(root.get("/api/nodes"))
    assert (shown["model_count"], shown["in_flight_count"]) == (2, 3)
    assert shown["taints"] == [{"key": "gpu", "value": "broken", "effect": "NoSchedule"}]


@pytest.mark.parametrize("count", [3, 60])
def test_the_list_takes_as_many_queries_for_three_nodes_as_for_sixty(
    root: Caller, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(count):
        node = make_node(f"n{number:02}")
        labels.merge_admin(node, {"rack": str(number)}, by="tests", now=NOW)
        make_replica(node)
    root.get("/api/nodes")  # the token's "last used" is written once a minute
    with django_assert_num_queries(4):  # token, nodes, taints, labels
        assert len(names(root)) == count


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    "query",
    [
        "status=sleepy",
        "status=HEALTHY",
        "type=toaster",
        "gpu=%00",
        "gpu=" + "x" * 2000,
        "search=%00",
        "search=a%0Ab",
        "ordering=password",
        "ordering=join_token__digest",
        "ordering=--name",
        "ordering=%00",
        "page=0",
        "page=-1",
        "page=x",
        "page=1.5",
        "page=" + "9" * 5000,
        "page_size=0",
        "page_size=",
        "page_size=%00",
        "page_size=" + "1" * 10,
        "label=tier%3D",
        "label=tier+in+()",
        "label=tier+in+fast",
        "label=%3Dfast",
        "label=tier%3Dfast,",
        "label=,",
        "label=disk.gb%3Emany",
        "label=a+b",
        "label=tier%3D%22fast",
        "label=tier%3D%00",
        "label=" + ",".join(f"k{number}" for number in range(65)),
        "label=" + "k" * 129,
    ],
)
def test_a_question_that_means_nothing_is_refused_and_not_ignored(root: Caller, query: str) -> None:
    reply = root.get(f"/api/nodes?{query}")
    assert reply.status_code == 400, reply.content
    refusal: dict[str, Any] = read(reply)
    assert refusal["code"] == "invalid_input"
    assert refusal["detail"].endswith(".")


def test_the_cluster_is_told_in_a_handful_of_numbers(
    root: Caller, fleet: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    root.get("/api/cluster")
    with django_assert_num_queries(4):
        told = read(root.get("/api/cluster"))
    assert told["nodes"] == {
        "pending": 1,
        "healthy": 2,
        "unhealthy": 1,
        "offline": 1,
        "draining": 1,
        "retired": 1,
    }
    assert (told["holding_since"], told["attention"]) == (None, 0)
