from typing import Any

from django.test import Client
from django.urls import reverse

from nodes.models import BackendNode, ClusterEvent, NodeLabel, NodeModel
from tests.factories import NOW, make_node, make_pending, make_replica

LIST = reverse("admin:nodes_backendnode_changelist")


def preview(browser: Client, action: str, *nodes: BackendNode, **more: Any) -> Any:
    chosen = [str(node.pk) for node in nodes]
    return browser.post(LIST, {"action": action, "_selected_action": chosen, "index": 0, **more})


def confirm(browser: Client, order: str, page: Any, **filled: Any) -> Any:
    url = reverse("admin:nodes_bulk", args=[order])
    return browser.post(url, {"ids": page.context["ids"], **filled}, follow=True)


def test_a_preview_says_who_is_touched_and_who_is_skipped_and_why(root: Client) -> None:
    page = preview(root, "approve_selected", make_pending("new"), make_node("old"))
    assert [node.name for node in page.context["touched"]] == ["new"]
    [(skipped, why)] = page.context["skipped"]
    assert skipped.name == "old"
    assert why == "old is already approved (by tests at 2030-01-01 12:00 UTC)."
    assert not ClusterEvent.objects.exists()


def test_confirming_does_it_once_for_each(root: Client) -> None:
    nodes = [make_pending("a"), make_pending("b")]
    done = confirm(root, "approve", preview(root, "approve_selected", *nodes))
    assert "Approved: 2." in done.content.decode()
    assert set(BackendNode.objects.values_list("approved_by", flat=True)) == {"root"}


def test_an_obstacle_that_arose_after_the_preview_is_a_sentence(root: Client) -> None:
    nodes = [make_pending("a"), make_pending("b")]
    page = preview(root, "approve_selected", *nodes)
    BackendNode.objects.filter(name="a").update(approved_at=NOW, approved_by="grace")
    text = confirm(root, "approve", page).content.decode()
    assert "a is already approved (by grace" in text
    assert "Approved: 1." in text


def test_a_drain_tells_what_is_running_and_takes_a_reason_and_a_deadline(root: Client) -> None:
    node = make_node()
    make_replica(node, in_flight=3)
    page = preview(root, "drain_selected", node)
    assert "3 requests are running on them now." in page.content.decode()
    confirm(root, "drain", page, reason="new fans", minutes="10")
    node.refresh_from_db()
    assert node.drain_reason == "new fans"
    assert node.drain_deadline is not None


def test_row_65_a_drain_counts_down_on_its_node_s_page(root: Client) -> None:
    node = make_node(drain_requested_at=NOW, drain_requested_by="ada")
    replica = make_replica(node, in_flight=3)
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    assert "3 requests are still running." in root.get(page).content.decode()
    NodeModel.objects.filter(pk=replica.pk).update(in_flight=0)
    assert "No request is running." in root.get(page).content.decode()
    BackendNode.objects.filter(pk=node.pk).update(drained_at=NOW)
    assert "Empty since" in root.get(page).content.decode()


def test_a_senseless_deadline_comes_back_with_the_preview(root: Client) -> None:
    node = make_node()
    page = confirm(root, "drain", preview(root, "drain_selected", node), minutes="-1")
    assert [one.pk for one in page.context["touched"]] == [node.pk]
    assert "greater than or equal to 1" in page.content.decode()
    node.refresh_from_db()
    assert node.drain_requested_at is None


def test_a_label_is_pinned_on_all(root: Client) -> None:
    nodes = [make_node("a"), make_node("b")]
    confirm(root, "label", preview(root, "label_selected", *nodes), label="tier=fast")
    assert list(NodeLabel.objects.values_list("key", "value", "source")) == [
        ("tier", "fast", "admin")
    ] * len(nodes)


def test_a_label_that_is_none_is_refused_in_a_sentence(root: Client) -> None:
    page = preview(root, "label_selected", make_node())
    assert "written key=value" in confirm(root, "label", page, label="tier").content.decode()


def test_all_pages_of_a_filtered_list_can_be_chosen_at_once(root: Client) -> None:
    for number in range(60):
        make_node(f"n-{number}")
    page = preview(root, "cordon_selected", make_pending("x"), select_across=1)
    confirm(root, "cordon", page, reason="night")
    assert BackendNode.objects.filter(cordon_reason="night").count() == 61


def test_orders_that_the_user_may_not_give_are_not_offered(viewer: Client) -> None:
    make_node()
    assert viewer.get(LIST).context["action_form"] is None


def test_one_goes_back_to_the_list_one_came_from(root: Client) -> None:
    page = preview(root, "cordon_selected", make_node())
    done = confirm(root, "cordon", page, query="status=healthy")
    assert done.redirect_chain == [(f"{LIST}?status=healthy", 302)]
