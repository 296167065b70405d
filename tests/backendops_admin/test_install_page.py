from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.models import GalleryBackend, NodeBackend, Operation, PendingBackendOp
from backendops.states import OpState, Verb
from nodes.models import BackendNode, ClusterEvent
from nodes.services import labels
from nodes.states import Liveness, NodeType
from tests.backendops_admin.rows import many_nodes
from tests.factories import NOW, make_node, make_op, make_pending

INSTALL = reverse("admin:backendops_operation_install")


def ids(*nodes: BackendNode) -> str:
    return ",".join(str(node.pk) for node in nodes)


def step(browser: Client, do: str, *nodes: BackendNode, **filled: Any) -> Any:
    wish = {"verb": "install", "backend": "vllm", "nodes": ids(*nodes), "do": do, **filled}
    return browser.post(INSTALL, wish)


def checked(page: Any) -> set[str]:
    return {one.node.name for one in page.context["page"].candidates if one.checked}


def have(node: BackendNode, name: str = "vllm", **more: Any) -> None:
    NodeBackend.objects.create(node=node, name=name, first_seen_at=NOW, observed_at=NOW, **more)


def meta(**capabilities: str) -> None:
    GalleryBackend.objects.create(
        gallery="g", gallery_url="u", name="vllm", capabilities=capabilities, checked_at=NOW
    )


def test_an_order_is_placed_only_by_the_last_step(root: Client) -> None:
    node = make_node()
    for do in ("look", "healthy", "compatible", "clear", "preview", "back", "no such step"):
        assert step(root, do, node).status_code == 200
    assert not Operation.objects.exists()
    assert not ClusterEvent.objects.exists()
    done = step(root, "place", node, reason="new model")
    operation = Operation.objects.get()
    assert done.url == reverse("admin:backendops_operation_change", args=[operation.pk])
    assert (operation.requested_by, operation.reason) == ("root", "new model")


def test_a_double_click_makes_one_operation(root: Client) -> None:
    node = make_node()
    assert step(root, "place", node).url == step(root, "place", node).url
    assert Operation.objects.count() == PendingBackendOp.objects.count() == 1


@pytest.mark.parametrize(
    ("filled", "words"),
    [
        ({"backend": ""}, "backend is required"),
        ({"nodes": ""}, "Choose at least one node."),
        ({"verb": "delete", "uri": "oci://x"}, "A delete takes a backend&#x27;s name"),
        ({"name": "x"}, "name and alias belong to a uri"),
        ({"backend": "x" * 300}, "at most 255 are allowed"),
        ({"nodes": "0" * 32}, "There is no node"),
    ],
)
def test_row_2_what_makes_no_sense_comes_back_as_a_sentence(
    root: Client, filled: dict[str, str], words: str
) -> None:
    node = make_node()
    for do in ("preview", "place"):
        page = step(root, do, **{"nodes": ids(node), **filled})
        assert words in page.content.decode()
    assert not Operation.objects.exists()


def test_a_selector_that_cannot_be_read_is_a_sentence_and_chooses_nobody(root: Client) -> None:
    make_node()
    page = step(root, "healthy", q="tier in (")
    assert page.context["refusal"]
    assert step(root, "healthy", q="tier=\x00").status_code == 200


def test_whole_sets_are_chosen_over_all_pages(root: Client) -> None:
    fleet = many_nodes(120)
    have(fleet[0])
    assert step(root, "healthy").context["chosen_count"] == 120
    assert step(root, "missing").context["chosen_count"] == 119
    assert step(root, "having").context["chosen_count"] == 1
    assert step(root, "clear", *fleet).context["chosen_count"] == 0


def test_row_73_the_missing_ones_can_be_preselected_by_address(root: Client) -> None:
    there, lacks = make_node("there"), make_node("lacks")
    have(there)
    page = root.get(INSTALL, {"backend": "vllm", "select": "missing"})
    assert checked(page) == {lacks.name}


def test_row_73_pending_nodes_and_agents_are_left_out_and_counted(root: Client) -> None:
    make_node("in")
    make_pending("new")
    make_node("agent", node_type=NodeType.AGENT, address="")
    page = root.get(INSTALL)
    assert [one.node.name for one in page.context["page"].candidates] == ["in"]
    assert "1 not approved yet is left out" in page.content.decode()


def test_row_73_a_mismatch_is_told_and_needs_to_be_confirmed(root: Client) -> None:
    meta(nvidia="vllm-cuda")
    gpu, cpu = make_node("gpu", capability="nvidia-cuda-12"), make_node("cpu")
    page = root.get(INSTALL, {"backend": "vllm"})
    why = {one.node.name: one.why_not for one in page.context["page"].candidates}
    assert why == {"gpu": "", "cpu": "vllm has no build for default (cpu)."}
    assert checked(step(root, "compatible")) == {"gpu"}
    preview = step(root, "preview", gpu, cpu)
    assert [skip.why for skip in preview.context["skipped"]] == [why["cpu"]]
    assert step(root, "preview", gpu, cpu, despite="on").context["count"] == 2


def test_a_preview_says_what_is_joined_superseded_and_blocked(root: Client) -> None:
    nodes = [make_node(name) for name in ("fresh", "same", "other", "busy", "away")]
    make_op(nodes[1], "vllm")
    make_op(nodes[2], "vllm", verb=Verb.DELETE)
    make_op(nodes[3], "vllm", verb=Verb.DELETE, state=OpState.RUNNING)
    BackendNode.objects.filter(name="away").update(liveness=Liveness.OFFLINE)
    page = step(root, "preview", *nodes)
    sorting = page.context["preview"]
    assert {node.name for node in sorting.fresh} == {"fresh", "other", "away"}
    assert (len(sorting.joined), len(sorting.superseded)) == (1, 1)
    assert [skip.why for skip in page.context["skipped"]] == [
        "delete of vllm is running on busy; cancel it or wait for it."
    ]
    assert "when it is back" in page.content.decode()


def test_row_8_an_order_that_is_blocked_everywhere_is_refused(root: Client) -> None:
    node = make_node("busy")
    make_op(node, "vllm", verb=Verb.DELETE, state=OpState.RUNNING)
    for do in ("preview", "place"):
        text = step(root, do, node).content.decode()
        assert "delete of vllm is running on busy" in text
    assert not Operation.objects.exists()


def test_installed_versions_and_outstanding_work_are_shown(root: Client) -> None:
    node = make_node()
    have(node, version="1.2")
    make_op(node, "vllm", verb=Verb.UPGRADE, state=OpState.RUNNING)
    [one] = root.get(INSTALL, {"backend": "vllm"}).context["page"].candidates
    assert one.installed == "1.2"
    assert one.busy.verb == Verb.UPGRADE


def test_narrows_by_name_and_by_labels(root: Client) -> None:
    fast = make_node("gpu-a")
    make_node("gpu-b")
    labels.merge_admin(fast, {"tier": "fast"}, by="ada", now=NOW)
    for text, names in (("tier=fast", ["gpu-a"]), ("b", ["gpu-b"]), ("", ["gpu-a", "gpu-b"])):
        page = root.get(INSTALL, {"q": text})
        assert [one.node.name for one in page.context["page"].candidates] == names


def test_a_choice_of_another_page_is_kept_and_unchecking_counts(root: Client) -> None:
    fleet = many_nodes(60)
    page = step(
        root, "look", fleet[0], fleet[1], fleet[59], shown=ids(*fleet[:50]), node=[str(fleet[1].pk)]
    )
    assert set(page.context["chosen"].split(",")) == {str(fleet[1].pk), str(fleet[59].pk)}


@pytest.mark.parametrize("nodes", [50, 1000])
def test_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], nodes: int
) -> None:
    for node in many_nodes(nodes)[:5]:
        have(node)
    queries(f"{INSTALL}?backend=vllm", 19)


def test_a_page_beyond_the_last_is_the_last(root: Client) -> None:
    many_nodes(60)
    assert step(root, "look", turn="99").context["page"].number == 2
    assert step(root, "look", page="-3").context["page"].number == 1


def test_the_node_list_leads_here_with_its_selection(root: Client) -> None:
    nodes = [make_node("a"), make_node("b")]
    chosen = [str(node.pk) for node in nodes]
    reply = root.post(
        reverse("admin:nodes_backendnode_changelist"),
        {"action": "install_selected", "_selected_action": chosen, "index": 0},
    )
    assert checked(root.get(reply.headers["Location"])) == {"a", "b"}


def test_a_selection_too_long_for_an_address_is_a_sentence(root: Client) -> None:
    many_nodes(201)
    reply = root.post(
        reverse("admin:nodes_backendnode_changelist"),
        {"action": "install_selected", "_selected_action": ["x"], "select_across": 1, "index": 0},
        follow=True,
    )
    assert "At most 200 nodes can be taken along" in reply.content.decode()


def test_a_viewer_is_not_offered_orders_and_is_refused(viewer: Client) -> None:
    node = make_node()
    assert viewer.get(INSTALL).status_code == 403
    assert step(viewer, "place", node).status_code == 403
    assert not Operation.objects.exists()
    lists = reverse("admin:backendops_operation_changelist")
    assert INSTALL not in viewer.get(lists).content.decode().split("Nobody has ordered")[0]
