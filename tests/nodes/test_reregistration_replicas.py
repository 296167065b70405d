from datetime import timedelta
from typing import Any

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from nodes.models import NodeModel
from nodes.services import registration
from nodes.states import Liveness, ReplicaState
from tests.factories import NOW, make_node, make_replica, make_request, make_token

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def test_renewing_credentials_does_not_wipe_running_replicas(queued: list[Any]) -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a")
    replica = make_replica(node, in_flight=3)
    registration.register(make_request(boot_id="a"), token=token, now=LATER)
    assert NodeModel.objects.serving().get() == replica
    assert NodeModel.objects.get().in_flight == 3
    assert queued == []


@pytest.mark.parametrize("before", ["a", ""])
def test_a_restarted_worker_has_nothing_loaded(
    before: str,
    removals: list[Any],
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id=before)
    make_replica(node)
    make_replica(node, index=1, state=ReplicaState.UNLOADING)
    make_replica(make_node("gpu-2"))
    with django_capture_on_commit_callbacks(execute=True):
        registration.register(make_request(boot_id="b"), token=token, now=LATER)
    assert not node.replicas.exists()
    assert sorted(removals) == [
        ("llama", 0, "The worker restarted."),
        ("llama", 1, "The worker restarted."),
    ]


def test_who_said_goodbye_has_nothing_loaded_even_without_a_boot_id(queued: list[Any]) -> None:
    token = make_token()
    node = make_node(join_token=token, left_at=NOW, liveness=Liveness.OFFLINE)
    make_replica(node)
    registration.register(make_request(), token=token, now=LATER)
    assert not node.replicas.exists()
    assert queued == []


def test_a_worker_that_does_not_say_is_asked_before_it_is_believed(
    queued: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    token = make_token()
    node = make_node(join_token=token)
    replica = make_replica(node)
    with django_capture_on_commit_callbacks(execute=True):
        registration.register(make_request(), token=token, now=LATER)
    replica.refresh_from_db()
    assert replica.suspect_since == LATER
    assert not NodeModel.objects.serving().exists()
    assert queued.count(("nodes.confirm_replicas", str(node.pk))) == 1


@pytest.mark.parametrize(
    "state", [ReplicaState.STAGING, ReplicaState.LOADING, ReplicaState.UNLOADING]
)
def test_a_replica_somebody_is_working_on_is_not_suspected(
    state: ReplicaState, queued: list[Any]
) -> None:
    token = make_token()
    replica = make_replica(make_node(join_token=token), state=state)
    registration.register(make_request(), token=token, now=LATER)
    replica.refresh_from_db()
    assert replica.suspect_since is None
