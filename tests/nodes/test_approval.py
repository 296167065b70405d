from datetime import timedelta
from uuid import UUID

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidMove
from nodes.models import BackendNode
from nodes.services import registration
from nodes.states import Liveness, NodeStatus
from tests.factories import NOW, make_node, make_pending

pytestmark = pytest.mark.django_db


def test_an_operator_lets_a_pending_node_work(
    capacity: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_pending()
    with django_capture_on_commit_callbacks(execute=True):
        registration.approve(node, by="ada", now=NOW)
    assert (node.status, node.approved_at, node.approved_by) == (NodeStatus.HEALTHY, NOW, "ada")
    assert BackendNode.objects.routable().get() == node
    event = node.events.get()
    assert (event.kind, event.actor) == ("node.approved", "ada")
    assert capacity == [node.pk]


def test_approving_twice_is_a_sentence() -> None:
    node = make_pending("gpu-1")
    stale = BackendNode.objects.get(pk=node.pk)
    registration.approve(node, by="ada", now=NOW)
    with pytest.raises(
        InvalidMove, match=r"gpu-1 is already approved \(by ada at 2030-01-01 12:00 UTC\)\."
    ):
        registration.approve(stale, by="bob", now=NOW + timedelta(hours=1))
    node.refresh_from_db()
    assert (node.approved_by, node.events.count()) == ("ada", 1)


def test_a_retired_node_is_not_approved() -> None:
    node = make_pending("gpu-1", retired_at=NOW, liveness=Liveness.OFFLINE)
    with pytest.raises(InvalidMove, match="gpu-1 is retired"):
        registration.approve(node, by="ada", now=NOW)


def test_approval_does_not_wake_a_silent_node() -> None:
    node = make_pending(liveness=Liveness.OFFLINE)
    registration.approve(node, by="ada", now=NOW)
    assert node.status == NodeStatus.OFFLINE


def test_approval_changes_the_etag() -> None:
    node = make_node("other")
    pending = make_pending()
    registration.approve(pending, by="ada", now=NOW)
    assert (pending.version, node.version) == (2, 1)
