from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.models import Operation
from backendops.states import OpState, Verb
from nodes.models import ClusterEvent
from tests.backendops_admin.test_backends_page import UPGRADE_ALL, have, newer
from tests.backendops_admin.test_install_page import INSTALL
from tests.factories import make_node, make_op, make_operation

__all__ = ["newer"]


def install(root: Client) -> None:
    node = make_node()
    root.post(INSTALL, {"verb": "install", "backend": "vllm", "node": str(node.pk), "do": "place"})


def upgrade_all(root: Client) -> None:
    have(make_node())
    root.post(UPGRADE_ALL, {"backend": ["vllm"]})


def retry(root: Client) -> None:
    failed = make_operation(make_op(make_node(), state=OpState.DEAD), requested_by="somebody")
    url = reverse("admin:backendops_operation_retry", args=[failed.pk])
    root.post(url, {"_form_submitted": "true"})


@pytest.mark.parametrize(
    ("way", "verb"),
    [(install, Verb.INSTALL), (upgrade_all, Verb.UPGRADE), (retry, Verb.INSTALL)],
)
def test_row_81_every_order_by_mouse_is_recorded_with_who_gave_it(
    root: Client, newer: None, way: Any, verb: Verb
) -> None:
    way(root)
    operation = Operation.objects.get(requested_by="root")
    assert (operation.verb, operation.ops.count()) == (verb, 1)
    event = ClusterEvent.objects.get(kind="operation.requested")
    assert (event.actor, event.after["operation"]) == ("root", str(operation.pk))
