from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from clustermgr import roles
from nodes.admin.bulk import ORDERS
from nodes.admin.edits import EDITS
from nodes.models import BackendNode, ClusterEvent, JoinToken
from nodes.services import events
from nodes.states import Severity
from tests.factories import NOW, make_pending, make_token

SUBMITTED = {"_form_submitted": "true"}


def action_urls() -> list[str]:
    """Every action button of every page of ours, on a row that exists."""
    event = events.record(
        "node.went_offline", actor="system", now=NOW, subject="x", severity=Severity.ATTENTION
    )
    rows: dict[Any, Any] = {
        BackendNode: make_pending(join_token=make_token()).pk,
        JoinToken: JoinToken.objects.get().pk,
        ClusterEvent: event.pk,
    }
    return [
        reverse(f"admin:{action.action_name}", args=[key])
        for model, key in rows.items()
        for action in admin.site._registry[model]._get_base_actions_detail()  # type: ignore[attr-defined]
    ]


def post_urls() -> list[str]:
    node = BackendNode.objects.get()
    orders = [reverse("admin:nodes_bulk", args=[order.name]) for order in ORDERS]
    return orders + [reverse("admin:nodes_edit", args=[node.pk, name]) for name in EDITS]


def picture() -> list[Any]:
    return [
        list(model.objects.order_by("pk").values())
        for model in (BackendNode, JoinToken, ClusterEvent)
    ]


def test_looking_at_an_action_changes_nothing(root: Client) -> None:
    urls = action_urls()
    before = picture()
    assert len(urls) >= 12
    for url in urls:
        assert root.get(url).status_code == 200, url
    for url in post_urls():
        assert root.get(url).status_code == 405, url
    assert picture() == before


def test_a_viewer_is_refused_every_action(viewer: Client) -> None:
    urls = action_urls()
    before = picture()
    for url in urls + post_urls():
        assert viewer.post(url, SUBMITTED).status_code == 403, url
    assert picture() == before


def test_an_action_without_the_page_s_token_is_refused(superuser: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(superuser)
    urls = action_urls()
    before = picture()
    for url in urls + post_urls():
        assert strict.post(url, SUBMITTED).status_code == 403, url
    assert picture() == before


def test_staff_without_any_permission_sees_nothing(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    for name in ("nodes_backendnode_changelist", "nodes_live", "add_worker"):
        assert client.get(reverse(f"admin:{name}")).status_code == 403
    text = client.get(reverse("admin:index")).content.decode()
    assert "Needs attention" not in text
    assert reverse("admin:nodes_backendnode_changelist") not in text


def test_an_operator_runs_the_fleet_and_hands_out_no_keys(operator: Client) -> None:
    node = make_pending()
    assert operator.post(
        reverse("admin:nodes_backendnode_approve", args=[node.pk]), SUBMITTED
    ).headers["HX-Redirect"]
    assert operator.get(reverse("admin:add_worker")).status_code == 403
    retire = reverse("admin:nodes_backendnode_retire", args=[node.pk])
    assert operator.post(retire, SUBMITTED).status_code == 403
    node.refresh_from_db()
    assert (node.approved_by, node.retired_at) == ("operator", None)


def test_approving_twice_is_a_sentence(root: Client) -> None:
    node = make_pending()
    url = reverse("admin:nodes_backendnode_approve", args=[node.pk])
    root.post(url, SUBMITTED)
    root.post(url, SUBMITTED)
    page = root.get(reverse("admin:nodes_backendnode_changelist")).content.decode()
    assert f"{node.name} is already approved (by root at" in page


def test_buttons_follow_the_state(root: Client) -> None:
    node = make_pending()
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])

    def offered() -> set[str]:
        flat = []
        for item in root.get(page).context["actions_detail"]:
            flat += item.get("items", [item])
        return {item["title"] for item in flat}

    assert offered() == {"Approve", "Cordon", "Drain", "Retire"}
    root.post(reverse("admin:nodes_backendnode_approve", args=[node.pk]), SUBMITTED)
    root.post(
        reverse("admin:nodes_backendnode_drain", args=[node.pk]), {**SUBMITTED, "minutes": "5"}
    )
    assert offered() == {"Cordon", "Move deadline", "Stop worker", "Resume", "Retire"}
    root.post(reverse("admin:nodes_backendnode_stop_worker", args=[node.pk]), SUBMITTED)
    assert offered() == {"Cordon", "Move deadline", "Resume", "Retire"}
    root.post(reverse("admin:nodes_backendnode_retire", args=[node.pk]), SUBMITTED)
    assert offered() == {"Readmit"}


@pytest.mark.django_db
def test_each_role_includes_the_weaker_one() -> None:
    roles.ensure_groups()
    roles.ensure_groups()
    sizes = [Group.objects.get(name=name).permissions.count() for name in roles.ROLES]
    assert roles.VIEWER < roles.OPERATOR < roles.ADMIN
    assert sizes == [len(wanted) for wanted in roles.ROLES.values()]


@pytest.mark.django_db
def test_a_group_of_one_s_own_is_never_touched() -> None:
    Group.objects.create(name="night shift")
    roles.ensure_groups()
    assert not Group.objects.get(name="night shift").permissions.exists()
