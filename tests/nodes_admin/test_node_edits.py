from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from nodes.models import BackendNode, NodeLabel, NodeTaint
from nodes.services import labels
from tests.factories import GIB, NOW, make_node


def edit(browser: Client, node: BackendNode, name: str, **filled: Any) -> str:
    url = reverse("admin:nodes_edit", args=[node.pk, name])
    return browser.post(url, filled, follow=True).content.decode()


def test_an_operator_s_label_is_set_changed_and_removed(operator: Client) -> None:
    node = make_node()
    assert "gpu-1 now has tier=fast." in edit(operator, node, "set-label", key="tier", value="fast")
    edit(operator, node, "set-label", key="tier", value="slow")
    assert NodeLabel.objects.get().value == "slow"
    edit(operator, node, "remove-label", key="tier")
    assert not NodeLabel.objects.exists()


def test_the_labels_tab_shows_who_owns_what_and_what_counts(operator: Client) -> None:
    node = make_node()
    labels.apply_registration(node, reported={"tier": "fast"}, token_labels={}, now=NOW)
    labels.merge_admin(node, {"tier": "prod"}, by="ada", now=NOW)
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    rows = operator.get(page, {"tab": "labels"}).context["labels"]
    tier = {row.label.source: row.counts for row in rows if row.label.key == "tier"}
    assert tier == {"admin": True, "worker": False}


def test_another_owner_s_label_is_not_removed_but_explained(operator: Client) -> None:
    node = make_node()
    labels.apply_registration(node, reported={"tier": "fast"}, token_labels={}, now=NOW)
    assert "would come back" in edit(operator, node, "remove-label", key="tier")


def test_taints_come_and_go(operator: Client) -> None:
    node = make_node()
    taint = {"key": "gpu", "value": "broken", "effect": "NoSchedule"}
    edit(operator, node, "add-taint", version=node.version, **taint)
    assert str(NodeTaint.objects.get()) == "gpu=broken:NoSchedule"
    node.refresh_from_db()
    edit(operator, node, "remove-taint", version=node.version, key="gpu")
    assert not NodeTaint.objects.exists()


def test_taints_edited_on_an_old_page_are_refused(operator: Client) -> None:
    node = make_node()
    labels.merge_admin(node, {"tier": "fast"}, by="grace", now=NOW)
    said = edit(operator, node, "add-taint", version=node.version, key="x", effect="NoSchedule")
    assert "was changed by somebody else" in said
    assert not NodeTaint.objects.exists()


def test_capacity_is_overridden_and_reset(operator: Client) -> None:
    node = make_node(total_vram=24 * GIB, worker_max_replicas_per_model=2)
    edit(operator, node, "set-slots", value="4")
    assert "override" in edit(operator, node, "set-budget", value="50%")
    node.refresh_from_db()
    assert (node.max_replicas_per_model, node.vram_budget_bytes) == (4, 12 * GIB)
    edit(operator, node, "reset-slots")
    edit(operator, node, "reset-budget")
    node.refresh_from_db()
    assert (node.max_replicas_per_model, node.vram_budget) == (2, "")


@pytest.mark.parametrize(
    ("name", "filled", "sentence"),
    [
        ("set-slots", {"value": "many"}, "That is not a whole number."),
        ("set-slots", {"value": "0"}, "1 to 10000 slots"),
        ("set-budget", {"value": "120%"}, "more than all of the VRAM"),
        ("set-label", {"key": "no spaces"}, "A label key has"),
        ("add-taint", {"key": "x", "effect": "Explode", "version": "1"}, "effect is one of"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    operator: Client, name: str, filled: dict[str, str], sentence: str
) -> None:
    node = make_node()
    assert sentence in edit(operator, node, name, **filled)
    node.refresh_from_db()
    assert node.version == 1


def test_a_viewer_sees_labels_and_capacity_without_inputs(viewer: Client) -> None:
    page = reverse("admin:nodes_backendnode_change", args=[make_node().pk])
    for tab in ("labels", "capacity"):
        assert "cm-input" not in viewer.get(page, {"tab": tab}).content.decode()
