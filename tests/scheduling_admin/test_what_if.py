from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from nodes.models import BackendNode, NodeModel
from scheduling.models import LoadJob, PlacementDecision
from scheduling.services import reconciling
from tests.factories import GIB, NOW, make_model, make_node, make_replica, make_rule

PAGE = "admin:scheduling_whatif"


def ask(client: Client, **asked: str) -> str:
    reply = client.get(reverse(PAGE), asked)
    assert reply.status_code == 200
    return reply.content.decode()


@pytest.fixture
def pair(db: None) -> None:
    """Two machines; the one model runs on the first, as its rule wants."""
    make_model()
    make_rule(min_replicas=1)
    make_replica(make_node("gpu-1"), config_revision="r1")
    make_node("gpu-2")


@pytest.mark.usefixtures("pair")
def test_draining_a_node_tells_where_its_replicas_would_go(viewer: Client) -> None:
    shown = ask(viewer, act="drain", nodes="gpu-1")
    assert "1 replica leaves, 1 is loaded." in shown
    assert "Goes when it is replaced: on gpu-2." in shown
    assert "llama on gpu-2" in shown
    assert "its node is emptied" in shown


@pytest.mark.usefixtures("pair")
def test_a_replica_that_nothing_can_replace_stays_and_the_smallest_fix_is_named(
    viewer: Client,
) -> None:
    BackendNode.objects.filter(name="gpu-2").update(cordoned_at=NOW)
    shown = ask(viewer, act="drain", nodes="gpu-1")
    assert "1 rule cannot be kept." in shown
    assert "Serves on: nothing can replace it." in shown
    assert "To mend it: uncordon gpu-2" in shown
    assert "Lost: nothing can replace it." in ask(viewer, act="remove", nodes="gpu-1")


@pytest.mark.usefixtures("pair")
def test_a_load_that_comes_for_another_reason_is_news(viewer: Client) -> None:
    NodeModel.objects.update(in_flight=3)  # busy: one more is loaded on gpu-2 anyway
    assert "Also without this" in ask(viewer, act="cordon", nodes="gpu-1")
    shown = ask(viewer, act="drain", nodes="gpu-1")
    assert "1 replica leaves, 1 is loaded." in shown
    assert "Also without this" not in shown


@pytest.mark.usefixtures("pair")
def test_a_higher_minimum_tells_what_would_be_placed_and_what_is_missing(viewer: Client) -> None:
    assert "1 is loaded." in ask(viewer, model="llama", min="2")
    short = ask(viewer, model="llama", min="4")
    assert "1 is loaded, 1 rule cannot be kept." in short
    assert "2 missing" in short
    assert "or lower min_replicas to 2" in short


@pytest.mark.usefixtures("pair")
def test_a_new_model_is_weighed_before_anybody_defines_it(viewer: Client) -> None:
    BackendNode.objects.update(total_vram=8 * GIB, available_vram=8 * GIB)
    assert "mistral on gpu-2" in ask(viewer, new="mistral", new_vram="6 GiB")
    large = ask(viewer, new="mistral", new_vram="60 GiB", new_min="1")
    assert "too little memory in all" in large


@pytest.mark.usefixtures("pair")
def test_what_happens_anyway_is_told_apart(viewer: Client) -> None:
    make_model("other")
    make_rule("other", min_replicas=1)
    shown = ask(viewer, act="cordon", nodes="gpu-1")
    assert "Nothing would be different." in shown
    assert "Also without this" in shown


@pytest.mark.usefixtures("pair")
def test_a_replica_nobody_asks_for_is_stopped_once_it_is_idle(viewer: Client) -> None:
    make_model("tool")
    make_replica(BackendNode.objects.get(name="gpu-1"), "tool", config_revision="r1")
    assert "Stopped once it is idle: no rule asks for it." in ask(viewer, nodes="gpu-1")


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nodes": "ghost"}, "There is no node ghost."),
        ({"nodes": "gpu-1", "act": "burn"}, "A node is drained"),
        ({"nodes": ",".join(map(str, range(101)))}, "At most 100 nodes"),
        ({"model": "ghost", "min": "1"}, "There is no model ghost"),
        ({"model": "llama", "min": "many"}, "min_replicas must be a whole number"),
        ({"model": "llama", "min": "9999"}, "min_replicas must be a whole number"),
        ({"model": "llama", "min": "3", "max": "2"}, "is above max_replicas"),
        ({"model": "llama", "spread": "yes"}, "spread_all stands alone"),
        ({"model": "llama", "selector": "a in ("}, "The selector cannot be read"),
        ({"new": "a#b"}, "is no name for a model"),
        ({"new": "x", "new_vram": "much"}, "is no size"),
    ],
)
def test_what_cannot_be_supposed_comes_back_with_a_sentence_and_what_was_typed(
    viewer: Client, asked: dict[str, str], words: str
) -> None:
    shown = ask(viewer, **asked)
    assert words in shown
    typed = [value for name, value in asked.items() if name != "act"]
    assert all(f'value="{value}"' in shown for value in typed if value != "yes")


@pytest.mark.usefixtures("pair")
def test_asking_touches_nothing(viewer: Client) -> None:
    for asked in ({"nodes": "gpu-1"}, {"model": "llama", "min": "4"}, {"new": "x"}):
        ask(viewer, **asked)
    assert not LoadJob.objects.exists()
    assert not PlacementDecision.objects.exists()
    assert not BackendNode.objects.exclude(drain_requested_at=None).exists()


def test_nobody_asks_without_the_permission(
    client: Client, db: None, django_user_model: Any
) -> None:
    client.force_login(django_user_model.objects.create_user("guest", is_staff=True))
    assert client.get(reverse(PAGE)).status_code == 403


@pytest.mark.parametrize("count", [2, 12])
def test_an_answer_costs_the_same_however_much_there_is(
    queries: Callable[[str, int], None], count: int
) -> None:
    for number in range(count):
        make_model(f"m{number}")
        make_rule(f"m{number}", min_replicas=1)
        make_replica(make_node(f"gpu-{number}"), f"m{number}", config_revision="r1")
    queries(f"{reverse(PAGE)}?nodes=gpu-1", 14)


def test_loads_that_would_be_given_up_are_told(viewer: Client) -> None:
    make_model()
    make_rule(min_replicas=2)
    for name in ("gpu-1", "gpu-2"):
        make_node(name)
    reconciling.tick(now=NOW)
    text = ask(viewer, model="llama", min="0", max="1")
    assert "1 load is given up." in text
    assert "More run or load than max_replicas (1) allows." in text


@pytest.mark.parametrize(("act", "why"), [("drain", "is being drained."), ("remove", "is gone.")])
def test_loads_on_a_node_that_is_emptied_or_gone_are_given_up_too(
    viewer: Client, act: str, why: str
) -> None:
    make_model()
    make_rule(min_replicas=1)
    make_node("gpu-1")
    reconciling.tick(now=NOW)
    make_node("gpu-2")
    text = ask(viewer, act=act, nodes="gpu-1")
    assert "1 is loaded, 1 load is given up." in text
    assert f"gpu-1 {why}" in text


@pytest.mark.usefixtures("pair")
def test_a_place_that_takes_several_is_named_once(viewer: Client) -> None:
    make_replica(BackendNode.objects.get(name="gpu-1"), index=1, config_revision="r1")
    BackendNode.objects.update(max_replicas_per_model=2)
    text = ask(viewer, act="drain", nodes="gpu-1", model="llama", min="2")
    assert "Goes when it is replaced: on gpu-2." in text
