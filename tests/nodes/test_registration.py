from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from clustermgr.lib.errors import Forbidden, Gone, InvalidInput
from nodes.models import BackendNode, ClusterEvent
from nodes.services import registration
from nodes.states import LabelSource, Liveness, NodeStatus, Severity
from tests.factories import GIB, NOW, make_node, make_pending, make_request, make_token

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def kinds(node: BackendNode) -> list[str]:
    """What happened, but for the labels: they have tests of their own."""
    told = node.events.exclude(kind="node.labels_changed").order_by("id")
    return list(told.values_list("kind", flat=True))


def test_a_new_machine_waits_for_approval() -> None:
    token = make_token()
    node = registration.register(make_request(gpu_vendor="nvidia"), token=token, now=NOW)
    assert node.status == NodeStatus.PENDING
    assert (node.join_token, node.last_heartbeat, node.gpu_vendor) == (token, NOW, "nvidia")
    assert not BackendNode.objects.routable().exists()
    event = node.events.get(kind="node.registered")
    assert (event.kind, event.actor, event.after["token"]) == (
        "node.registered",
        "worker gpu-1",
        token.name,
    )


def test_a_token_may_approve_by_itself() -> None:
    token = make_token(auto_approve=True)
    node = registration.register(make_request(), token=token, now=NOW)
    assert (node.status, node.approved_by) == (NodeStatus.HEALTHY, "token token-1")
    assert kinds(node) == ["node.registered", "node.approved"]


def test_the_cluster_may_approve_everybody(settings: Settings) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, auto_approve_nodes=True)
    node = registration.register(make_request(), token=make_token(), now=NOW)
    assert (node.status, node.approved_by) == (NodeStatus.HEALTHY, "CLUSTER_AUTO_APPROVE_NODES")


def test_coming_back_keeps_id_approval_and_creation_date() -> None:
    token = make_token()
    old = make_node(join_token=token, boot_id="a")
    new = registration.register(
        make_request(boot_id="b", http_address="10.0.0.9:1"), token=token, now=LATER
    )
    assert (new.pk, new.approved_by, new.created_at) == (old.pk, "tests", NOW)
    assert (new.last_heartbeat, new.version) == (LATER, old.version + 1)


def test_the_history_tells_only_what_changed() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a", total_vram=8 * GIB)
    registration.register(
        make_request(boot_id="a", total_vram=16 * GIB, available_vram=3), token=token, now=LATER
    )
    event = node.events.exclude(kind="node.labels_changed").get()
    assert (event.kind, event.before, event.after) == (
        "node.reregistered",
        {"total_vram": 8 * GIB},
        {"total_vram": 16 * GIB},
    )


@pytest.mark.parametrize("liveness", [Liveness.UNHEALTHY, Liveness.OFFLINE])
def test_registering_again_is_a_sign_of_life(liveness: Liveness) -> None:
    token = make_token()
    node = make_node(join_token=token, liveness=liveness, liveness_reason="silent")
    node = registration.register(make_request(), token=token, now=LATER)
    assert (node.liveness, node.liveness_changed_at) == (Liveness.HEALTHY, LATER)
    assert node.liveness_reason == ""
    event = node.events.exclude(kind="node.labels_changed").get()
    assert (event.before, event.after) == ({"liveness": liveness}, {"liveness": "healthy"})


def test_row_63_a_stale_pending_node_does_not_become_healthy_by_registering_again() -> None:
    token = make_token()
    make_pending("gpu-1", join_token=token, liveness=Liveness.OFFLINE)
    node = registration.register(make_request(), token=token, now=LATER)
    assert node.status == NodeStatus.PENDING
    assert not BackendNode.objects.routable().exists()


def test_row_64_an_operators_drain_is_not_cancelled_by_registering_again() -> None:
    token = make_token()
    make_node(join_token=token, drain_requested_at=NOW, drain_requested_by="ada")
    node = registration.register(make_request(), token=token, now=LATER)
    assert (node.status, node.drain_requested_by) == (NodeStatus.DRAINING, "ada")


def test_a_cordon_is_not_lifted_by_registering_again() -> None:
    token = make_token()
    make_node(join_token=token, cordoned_at=NOW, cordoned_by="ada")
    registration.register(make_request(boot_id="new"), token=token, now=LATER)
    assert not BackendNode.objects.schedulable().exists()


def test_the_workers_own_drain_ends_with_its_next_registration() -> None:
    token = make_token()
    make_node(join_token=token, drain_requested_at=NOW, drain_by_worker=True)
    node = registration.register(make_request(), token=token, now=LATER)
    assert node.status == NodeStatus.HEALTHY
    assert node.drain_requested_at is None


def test_a_leaver_is_back_when_it_registers_again() -> None:
    token = make_token()
    make_node(join_token=token, liveness=Liveness.OFFLINE, left_at=NOW)
    node = registration.register(make_request(), token=token, now=LATER)
    assert (node.left_at, node.status) == (None, NodeStatus.HEALTHY)


def test_a_node_cannot_be_taken_over_with_another_token() -> None:
    node = make_node(join_token=make_token())
    with pytest.raises(Forbidden, match="gpu-1 joined with another token than token-2"):
        registration.register(make_request(address="evil:1"), token=make_token(), now=LATER)
    node.refresh_from_db()
    assert node.address == "gpu-1.example:50051"
    event = node.events.exclude(kind="node.labels_changed").get()
    assert (event.kind, event.severity, event.actor) == (
        "join.refused",
        Severity.ATTENTION,
        "token token-2",
    )


def test_a_node_without_a_token_binds_the_next_one_that_registers_it() -> None:
    token = make_token()
    make_node(join_token=None)
    assert registration.register(make_request(), token=token, now=LATER).join_token == token


def test_a_retired_node_does_not_come_back_by_registering() -> None:
    token = make_token()
    node = make_node(join_token=token, retired_at=NOW, liveness=Liveness.OFFLINE)
    with pytest.raises(Gone, match="an operator must readmit it"):
        registration.register(make_request(), token=token, now=LATER)
    node.refresh_from_db()
    assert (node.status, node.last_heartbeat) == (NodeStatus.RETIRED, NOW)
    assert node.events.get().severity == Severity.ATTENTION


def test_a_worker_that_keeps_trying_is_one_event_until_somebody_has_seen_it() -> None:
    token = make_token()
    make_node(join_token=token, retired_at=NOW, liveness=Liveness.OFFLINE)
    for second in range(0, 120, 10):
        with pytest.raises(Gone):
            registration.register(
                make_request(), token=token, now=LATER + timedelta(seconds=second)
            )
    assert ClusterEvent.objects.filter(kind="join.refused").count() == 1


def test_a_second_machine_under_a_live_name_raises_attention() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a")
    now = NOW + timedelta(seconds=30)
    registration.register(make_request(address="10.9.9.9:1", boot_id="b"), token=token, now=now)
    event = node.events.get(kind="node.name_collision")
    assert event.severity == Severity.ATTENTION
    assert event.before["address"] == "gpu-1.example:50051"
    assert event.after["address"] == "10.9.9.9:1"


@pytest.mark.parametrize(
    ("boot_id", "address", "after"),
    [
        ("a", "10.9.9.9:1", timedelta(seconds=30)),  # one process that moved
        ("b", "gpu-1.example:50051", timedelta(seconds=30)),  # a restart in place
        ("b", "10.9.9.9:1", timedelta(seconds=61)),  # the first fell silent long ago
    ],
)
def test_a_restart_or_a_move_is_no_collision(boot_id: str, address: str, after: timedelta) -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a")
    request = make_request(address=address, boot_id=boot_id)
    registration.register(request, token=token, now=NOW + after)
    assert kinds(node) == ["node.reregistered"]


def test_worker_and_token_labels_are_kept_apart_from_an_operators() -> None:
    token = make_token(labels={"site": "berlin"})
    node = make_node(join_token=token)
    node.label_rows.create(key="tier", value="gold", source=LabelSource.ADMIN)
    registration.register(make_request(labels={"tier": "fast"}), token=token, now=LATER)
    rows = node.label_rows.exclude(source=LabelSource.AUTO)
    assert set(rows.values_list("key", "value", "source")) == {
        ("tier", "gold", "admin"),
        ("tier", "fast", "worker"),
        ("site", "berlin", "token"),
    }


def test_a_senseless_budget_is_refused_and_nothing_is_written() -> None:
    with pytest.raises(InvalidInput, match="VRAM budget"):
        registration.register(make_request(vram_budget="lots"), token=make_token(), now=NOW)
    assert not BackendNode.objects.exists()
    assert not ClusterEvent.objects.exists()


def test_an_approved_node_that_registers_brings_capacity(
    capacity: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    token = make_token()
    node = make_node(join_token=token)
    with django_capture_on_commit_callbacks(execute=True):
        registration.register(make_request(), token=token, now=LATER)
        registration.register(make_request("unknown"), token=token, now=LATER)
    assert set(capacity) == {node.pk}


def test_asking_again_without_news_leaves_no_event() -> None:
    token = make_token()
    node = registration.register(make_request(boot_id="a"), token=token, now=NOW)
    before = node.events.count()
    registration.register(make_request(boot_id="a"), token=token, now=LATER)
    assert node.events.count() == before


def test_whoever_waits_alone_may_ask_often_and_a_crowd_may_not() -> None:
    node = make_pending()
    assert registration.ask_again_after(node) == timedelta(seconds=3)
    for number in range(200):
        make_pending(f"crowd-{number}")
    crowded = registration.ask_again_after(node)
    assert crowded is not None
    assert crowded.total_seconds() == pytest.approx(201 / 30, abs=0.01)
    assert registration.ask_again_after(make_node()) is None
