from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from clustermgr import roles
from nodes.models import BackendNode
from tests.factories import make_replica
from tests.logs.worker import LogWorker, line
from tests.services import free_port

pytestmark = pytest.mark.django_db


def browser(role: str) -> Client:
    roles.ensure_groups()
    user = User.objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db: None) -> Client:
    return browser("operator")


def page(client: Client, node: BackendNode, **more: str) -> str:
    url = reverse("admin:nodes_backendnode_change", args=[node.pk])
    return client.get(url, {"tab": "logs", **more}).content.decode()


def names(client: Client, node: BackendNode, **more: str) -> Any:
    return client.get(reverse("admin:nodes_logs", args=[node.pk]), more)


def test_the_page_itself_asks_no_worker(
    operator: Client, node: BackendNode, worker: LogWorker
) -> None:
    text = page(operator, node, log="llama")
    assert "Asking the worker" in text
    assert worker.heard == []


def test_what_printed_and_what_is_placed_can_be_chosen(
    operator: Client, node: BackendNode, worker: LogWorker
) -> None:
    make_replica(node, "quiet")
    worker.logs["<b>bold</b>#0"] = [line("x")]
    text = names(operator, node, log="llama#1").content.decode()
    for name in (">llama</a>", ">quiet</a>", ">&lt;b&gt;bold&lt;/b&gt;</a>"):
        assert name in text
    assert 'log=llama" class="cm-current"' in text


def test_a_node_on_which_nothing_ran_says_so(
    operator: Client, node: BackendNode, worker: LogWorker
) -> None:
    worker.logs = {}
    assert "No backend has printed anything" in names(operator, node).content.decode()


def test_a_worker_out_of_reach_is_a_sentence_and_a_button(
    operator: Client, node: BackendNode
) -> None:
    make_replica(node, "llama")
    BackendNode.objects.update(http_address=f"127.0.0.1:{free_port()}")
    reply = names(operator, node)
    text = reply.content.decode()
    assert reply.status_code == 200  # htmx shows nothing of an error
    assert "Nobody answers at 127.0.0.1" in text
    assert "The last heartbeat of gpu-1 was" in text
    assert "Ask again" in text
    assert ">llama</a>" in text


def test_replicas_can_be_switched_where_there_are_several(
    operator: Client, node: BackendNode
) -> None:
    make_replica(node, "llama", 0)
    assert "Merged" not in page(operator, node, log="llama")
    make_replica(node, "llama", 1)
    text = page(operator, node, log="llama#1")
    for choice in (">Merged</a>", ">#0</a>", 'aria-current="true">#1</a>'):
        assert choice in text


def test_a_replica_that_is_gone_can_still_be_read(operator: Client, node: BackendNode) -> None:
    text = page(operator, node, log="llama#7")
    assert 'aria-current="true">#7</a>' in text
    assert ">Merged</a>" in text


def test_a_viewer_is_told_what_he_lacks(node: BackendNode, worker: LogWorker) -> None:
    viewer = browser("viewer")
    make_replica(node, "llama")
    assert "You may not read logs." in page(viewer, node, log="llama")
    assert names(viewer, node).status_code == 403
    replicas = viewer.get(reverse("admin:nodes_nodemodel_changelist")).content.decode()
    assert "tab=logs" not in replicas
    assert worker.heard == []


def test_each_replica_leads_to_its_log(operator: Client, node: BackendNode) -> None:
    make_replica(node, "org/llama", 1)
    link = f"{node.pk}/change/?tab=logs&amp;log=org%2Fllama%231"
    assert link in operator.get(reverse("admin:nodes_nodemodel_changelist")).content.decode()
    tab = reverse("admin:nodes_backendnode_change", args=[node.pk])
    assert link in operator.get(tab, {"tab": "replicas"}).content.decode()
