from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from nodes.models import BackendNode, ClusterState
from nodes.presenting import displays
from nodes.services import labels
from tests.factories import GIB, NOW, make_node, make_pending

LIST = reverse("admin:nodes_backendnode_changelist")
LIVE = reverse("admin:nodes_live")


def names(page: Any) -> list[str]:
    return [node.name for node in page.context["cl"].result_list]


def make_many(count: int) -> list[BackendNode]:
    nodes = [make_node(f"many-{number:03}", gpu_vendor="nvidia") for number in range(count)]
    for node in nodes[:3]:
        labels.merge_admin(node, {"tier": "fast"}, by="ada", now=NOW)
    return nodes


@pytest.fixture
def queries(django_assert_num_queries: Any, operator: Client) -> Callable[[str, int], None]:
    def check(url: str, count: int) -> None:
        operator.get(url)  # permissions and content types are read once
        with django_assert_num_queries(count):
            assert operator.get(url).status_code == 200

    return check


@pytest.mark.parametrize("count", [3, 60])
def test_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], count: int
) -> None:
    make_many(count)
    queries(LIST, 18)  # two of them for the strip and the badge of dead letters


@pytest.mark.parametrize("count", [3, 60])
def test_a_refresh_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], count: int
) -> None:
    ids = ",".join(str(node.pk) for node in make_many(count)[:50])
    queries(f"{LIVE}?ids={ids}&pending=0:", 9)


def test_retired_nodes_are_out_of_sight_until_asked_for(root: Client) -> None:
    make_node("here")
    make_node("gone", retired_at=NOW, retired_by="ada")
    assert names(root.get(LIST)) == ["here"]
    assert names(root.get(LIST, {"status": "retired"})) == ["gone"]


def test_narrows_by_status_type_gpu_and_cordon(root: Client) -> None:
    make_node("a", gpu_vendor="nvidia", cordoned_at=NOW, cordoned_by="ada")
    make_node("b", node_type="agent", address="")
    make_pending("c")
    assert names(root.get(LIST, {"status": "pending"})) == ["c"]
    assert names(root.get(LIST, {"type": "agent"})) == ["b"]
    assert names(root.get(LIST, {"gpu": "nvidia"})) == ["a"]
    assert names(root.get(LIST, {"gpu": "none"})) == ["b", "c"]
    assert names(root.get(LIST, {"kept": "cordoned"})) == ["a"]


@pytest.mark.parametrize("name", ["status", "type", "gpu", "kept"])
def test_a_filter_nobody_offered_changes_nothing(root: Client, name: str) -> None:
    make_node("a")
    assert names(root.get(LIST, {name: "non\x00sense"})) == ["a"]


def test_searches_names_and_label_selectors(root: Client) -> None:
    for name, tier in (("gpu-a", "fast"), ("gpu-b", "slow"), ("cpu-c", "batch")):
        labels.merge_admin(make_node(name), {"tier": tier}, by="ada", now=NOW)
    assert names(root.get(LIST, {"q": "gpu"})) == ["gpu-a", "gpu-b"]
    assert names(root.get(LIST, {"q": "tier=fast"})) == ["gpu-a"]
    assert names(root.get(LIST, {"q": "tier in (fast,batch)"})) == ["cpu-c", "gpu-a"]
    assert names(root.get(LIST, {"q": "!tier"})) == []


def test_a_broken_selector_is_a_sentence_and_matches_nothing(root: Client) -> None:
    make_node()
    page = root.get(LIST, {"q": "tier in ("})
    assert names(page) == []
    assert "The selector cannot be read" in page.content.decode()


def test_those_who_wait_come_first_with_what_to_compare(operator: Client, viewer: Client) -> None:
    node = make_pending("new-box", address="10.1.1.1:50051", total_vram=24 * GIB)
    labels.apply_registration(node, reported={"rack": "9"}, token_labels={}, now=NOW)
    text = operator.get(LIST).content.decode()
    for fact in ("1 machine waits for approval", "10.1.1.1:50051", "24 GB", "rack=9"):
        assert fact in text
    assert 'aria-label="Approve new-box"' in text
    assert 'aria-label="Approve new-box"' not in viewer.get(LIST).content.decode()


def test_only_the_first_five_that_wait_are_spelled_out(root: Client) -> None:
    for number in range(7):
        make_pending(f"new-{number}")
    assert "and 2 more" in root.get(LIST).content.decode()


def test_a_held_sweep_shows_on_every_page_about_nodes(root: Client) -> None:
    ClusterState.objects.create(holding_since=NOW, holding_reason="Most are silent together.")
    page = reverse("admin:nodes_backendnode_change", args=[make_node().pk])
    for url in (LIST, page, reverse("admin:index"), LIVE):
        assert "Most are silent together." in root.get(url).content.decode()


def test_a_refresh_replaces_cells_and_never_a_checkbox(root: Client) -> None:
    node = make_node()
    reply = root.get(LIVE, {"ids": f"{node.pk},nonsense"})
    text = reply.content.decode()
    assert reply.headers["X-Live"] == "1"
    for cell in displays.LIVE:
        assert f'id="n-{node.pk}-{cell}" class="cm-cell" hx-swap-oob="true"' in text
    assert "action-select" not in text


def test_a_refresh_brings_the_callout_only_when_it_changed(root: Client) -> None:
    version = root.get(LIST).context["pending"].version
    assert "waits for approval" not in root.get(LIVE, {"pending": version}).content.decode()
    make_pending()
    assert "waits for approval" in root.get(LIVE, {"pending": version}).content.decode()


@pytest.mark.parametrize(
    ("seconds", "text", "tone"),
    [(12, "12 s ago", "good"), (45, "45 s ago", "warn"), (300, "5 min ago", "bad")],
)
def test_row_72_a_heartbeat_turns_amber_and_red(seconds: int, text: str, tone: str) -> None:
    age = displays.heartbeat(NOW - timedelta(seconds=seconds), now=NOW)
    assert (age.text, age.tone) == (text, tone)


def test_numbers_of_a_silent_node_do_not_look_live(db: None) -> None:
    node = make_node(total_ram=8 * GIB, last_heartbeat=NOW - timedelta(hours=1))
    assert displays.look(node, {}, now=NOW).ram.tone == "old"


def test_an_idle_bar_still_draws_its_track(root: Client) -> None:
    make_node(total_ram=8 * GIB, available_ram=8 * GIB, last_heartbeat=NOW)
    text = root.get(LIST).content.decode()
    assert 'role="progressbar"' in text
    assert 'aria-valuenow="0"' in text
    assert "0 / 8 GB" in text


def test_what_a_budget_withholds_does_not_count_as_used(db: None) -> None:
    node = make_node(
        total_vram=24 * GIB, vram_budget_bytes=12 * GIB, available_vram=12 * GIB, reserved_vram=GIB
    )
    bar = displays.vram(node, stale=False)
    assert bar.text == "1 / 12 GB"
    assert "budget 12 GB of 24 GB" in bar.title
