from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from nodes.admin.nodepage import TABS
from nodes.models import BackendNode
from nodes.services import events
from nodes.states import Severity
from tests.factories import GIB, NOW, make_node, make_pending, make_replica, make_token

LISTS = (
    *("nodes_backendnode_changelist", "nodes_nodemodel_changelist"),
    *("nodes_jointoken_changelist", "nodes_clusterevent_changelist", "add_worker", "index"),
)


def busy_node() -> BackendNode:
    node = make_node(
        "gpu-busy",
        last_heartbeat=NOW,
        total_vram=24 * GIB,
        available_vram=6 * GIB,
        cordoned_at=NOW,
        cordoned_by="ada",
        cordon_reason="new fans",
        drain_requested_at=NOW,
        drain_requested_by="ada",
        drain_deadline=NOW + timedelta(minutes=5),
        quarantined_until=NOW + timedelta(minutes=5),
        quarantine_reason="It comes and goes.",
        join_token=make_token(),
    )
    make_replica(node, in_flight=3)
    events.record(
        "node.went_offline",
        actor="system",
        now=NOW,
        node=node,
        severity=Severity.ATTENTION,
        before={"liveness": "healthy"},
        after={"liveness": "offline"},
    )
    return node


@pytest.mark.parametrize("name", LISTS)
def test_with_nothing_to_show(root: Client, name: str) -> None:
    assert root.get(reverse(f"admin:{name}")).status_code == 200


@pytest.mark.parametrize("name", LISTS)
def test_with_something_to_show(root: Client, name: str) -> None:
    busy_node()
    make_pending()
    assert root.get(reverse(f"admin:{name}")).status_code == 200


@pytest.mark.parametrize("tab", [*TABS, "no-such-tab"])
def test_every_tab_of_a_node(root: Client, tab: str) -> None:
    page = reverse("admin:nodes_backendnode_change", args=[busy_node().pk])
    assert root.get(page, {"tab": tab}).status_code == 200


def test_the_page_of_an_event_and_of_a_token(root: Client) -> None:
    node = busy_node()
    event = reverse("admin:nodes_clusterevent_change", args=[node.events.get().pk])
    token = reverse("admin:nodes_jointoken_change", args=[node.join_token_id])
    assert root.get(event).status_code == 200
    assert root.get(token).status_code == 200


def test_no_page_offers_to_delete(root: Client) -> None:
    node = busy_node()
    pages = [reverse(f"admin:{name}") for name in LISTS]
    pages.append(reverse("admin:nodes_backendnode_change", args=[node.pk]))
    for page in pages:
        text = root.get(page).content.decode()
        assert "/delete/" not in text
        assert "delete_selected" not in text


def test_facts_are_told_in_words(root: Client) -> None:
    page = reverse("admin:nodes_backendnode_change", args=[busy_node().pk])
    text = root.get(page).content.decode()
    assert "3 requests are still running." in text
    assert "new fans" in text
    assert "It comes and goes." in text


def test_an_empty_cluster_says_what_to_do_next(root: Client) -> None:
    text = root.get(reverse("admin:index")).content.decode()
    assert "No nodes yet" in text
    assert reverse("admin:add_worker") in text
    assert "Nothing: every node is where it should be." in text
