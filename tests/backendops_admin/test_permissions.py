from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from backendops.admin.deadletters import ORDERS
from backendops.models import NodeBackend, Operation, PendingBackendOp
from backendops.presenting.buttons import NEEDS
from backendops.states import OpState
from nodes.models import ClusterEvent
from tests.factories import NOW, make_node, make_op, make_operation

SUBMITTED = {"_form_submitted": "true", "reason": "because"}


def every_row() -> None:
    node = make_node()
    for number, state in enumerate(OpState):
        make_operation(make_op(node, f"b-{number}", state=state), backend=f"b-{number}")
    NodeBackend.objects.create(node=node, name="x", first_seen_at=NOW, observed_at=NOW)


def action_urls() -> list[str]:
    """Every action of every operation and op, whatever state it is in."""
    every_row()
    found = []
    for model in (Operation, PendingBackendOp):
        pages: Any = admin.site._registry[model]
        names = [action.action_name for action in pages._get_base_actions_detail()]
        keys = model._default_manager.values_list("pk", flat=True)
        found += [reverse(f"admin:{name}", args=[key]) for name in names for key in keys]
    return found


def post_urls() -> list[str]:
    node = NodeBackend.objects.get().node_id
    bulk = [reverse("admin:backendops_deadletters", args=[name]) for name in ORDERS]
    return [*bulk, reverse("admin:backendops_refresh", args=[node])]


def form_urls() -> list[str]:
    return [reverse("admin:backendops_operation_install"), reverse("admin:backendops_upgrade_all")]


def picture() -> list[Any]:
    models: Any = (Operation, PendingBackendOp, ClusterEvent)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_row_77_looking_at_an_action_changes_nothing(root: Client) -> None:
    urls = action_urls()
    before = picture()
    assert len(urls) == len(OpState) * 8
    for url in urls + form_urls():
        assert root.get(url).status_code == 200, url
    for url in post_urls():
        assert root.get(url).status_code == 405, url
    assert picture() == before


def test_row_77_a_viewer_is_refused_every_action(viewer: Client) -> None:
    urls = action_urls()
    before = picture()
    for url in urls + post_urls() + form_urls():
        assert viewer.post(url, SUBMITTED).status_code == 403, url
    assert picture() == before


def test_row_77_an_action_without_the_page_s_token_is_refused(superuser: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(superuser)
    urls = action_urls()
    before = picture()
    for url in urls + post_urls() + form_urls():
        assert strict.post(url, SUBMITTED).status_code == 403, url
    assert picture() == before


def test_row_78_without_the_permission_there_is_no_button_either(viewer: Client) -> None:
    every_row()
    for operation in Operation.objects.all():
        page = viewer.get(reverse("admin:backendops_operation_change", args=[operation.pk]))
        assert page.context["buttons"] == []
        assert all(share.buttons == [] for share, _ in page.context["rows"])


def test_every_button_leads_to_an_action_with_the_same_permission(root: Client) -> None:
    for model in (Operation, PendingBackendOp):
        pages: Any = admin.site._registry[model]
        for action in pages._get_base_actions_detail():
            verb = action.method.original_function_name
            [needed] = action.method.allowed_permissions
            assert pages.verbs[needed] == NEEDS[verb], verb


@pytest.mark.parametrize(
    "name",
    [
        "backendops_operation_changelist",
        "backendops_pendingbackendop_changelist",
        "backendops_nodebackend_changelist",
        "backendops_backend",
    ],
)
def test_staff_without_any_permission_sees_nothing(client: Client, db: None, name: str) -> None:
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert client.get(reverse(f"admin:{name}")).status_code == 403


def test_an_action_on_what_is_gone_is_not_found(root: Client) -> None:
    url = reverse("admin:backendops_pendingbackendop_cancel", args=[999])
    assert root.post(url, SUBMITTED).status_code == 404
