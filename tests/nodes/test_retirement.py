from datetime import timedelta
from typing import Any

import pytest
from django.db.models import ProtectedError
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import Gone, InvalidMove
from nodes.models import ClusterEvent, JoinToken
from nodes.services import registration, retirement
from nodes.states import LabelSource, Liveness, NodeStatus
from tests.factories import NOW, make_node, make_replica, make_request, make_token

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def test_a_retired_node_is_gone_but_its_history_stays(
    removals: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node()
    make_replica(node)
    node.label_rows.create(key="site", value="berlin", source=LabelSource.ADMIN)
    with django_capture_on_commit_callbacks(execute=True):
        retirement.retire(node, by="ada", reason="sold", now=NOW)
    assert (node.status, node.liveness) == (NodeStatus.RETIRED, Liveness.OFFLINE)
    assert (node.retired_by, node.retire_reason) == ("ada", "sold")
    assert removals == [("llama", 0, "Its node was retired.")]
    assert node.label_rows.exists()
    retired, loss = node.events.all()
    assert retired.after == {"replicas_removed": 1}
    assert (loss.kind, loss.subject, loss.actor) == ("replica.lost", "llama#0", "ada")


def test_retiring_twice_is_once() -> None:
    node = make_node()
    retirement.retire(node, by="ada", reason="sold", now=NOW)
    retirement.retire(node, by="bob", reason="", now=LATER)
    assert (node.retired_by, node.events.count()) == ("ada", 1)


def test_retiring_revokes_the_token_that_was_the_machines_own() -> None:
    own, shared = make_token(one_machine=True), make_token()
    registration.register(make_request("gpu-1"), token=own, now=NOW)
    registration.register(make_request("gpu-2"), token=shared, now=NOW)
    for token in (own, shared):
        retirement.retire(token.nodes.get(), by="ada", reason="", now=LATER)
    revoked = JoinToken.objects.filter(revoked_at=LATER)
    assert list(revoked) == [own]
    assert ClusterEvent.objects.get(kind="token.revoked").actor == "ada"


def test_a_readmitted_node_starts_over_as_pending() -> None:
    token = make_token()
    node = make_node(join_token=token)
    retirement.retire(node, by="ada", reason="", now=NOW)
    retirement.readmit(node, by="bob", now=LATER)
    assert (node.status, node.approved_at, node.join_token) == (NodeStatus.PENDING, None, token)
    node = registration.register(make_request(), token=token, now=LATER)
    assert node.status == NodeStatus.PENDING


def test_a_readmitted_machine_may_bring_a_new_token_of_its_own() -> None:
    node = registration.register(make_request(), token=make_token(one_machine=True), now=NOW)
    retirement.retire(node, by="ada", reason="", now=NOW)
    retirement.readmit(node, by="ada", now=LATER)
    fresh = make_token(one_machine=True)
    assert registration.register(make_request(), token=fresh, now=LATER).join_token == fresh


def test_only_the_retired_are_readmitted() -> None:
    with pytest.raises(InvalidMove, match="gpu-1 is not retired"):
        retirement.readmit(make_node(), by="ada", now=NOW)


def test_readmission_keeps_an_operators_cordon() -> None:
    node = make_node(cordoned_at=NOW, cordoned_by="ada")
    retirement.retire(node, by="ada", reason="", now=NOW)
    assert retirement.readmit(node, by="ada", now=LATER).cordoned_at == NOW


def test_a_released_node_joins_with_the_next_token() -> None:
    old, new = make_token(), make_token()
    node = make_node(join_token=old)
    retirement.release_token(node, by="ada", now=NOW)
    retirement.release_token(node, by="ada", now=NOW)
    assert node.join_token is None
    assert node.events.get().before == {"token": "token-1"}
    back = registration.register(make_request(), token=new, now=LATER)
    assert (back.join_token, back.status) == (new, NodeStatus.PENDING)


def test_releasing_the_token_does_not_readmit() -> None:
    node = make_node(retired_at=NOW, liveness=Liveness.OFFLINE, join_token=make_token())
    retirement.release_token(node, by="ada", now=NOW)
    with pytest.raises(Gone):
        registration.register(make_request(), token=make_token(), now=LATER)


def test_a_node_row_with_replicas_cannot_be_deleted_behind_the_door() -> None:
    node = make_node()
    make_replica(node)
    with pytest.raises(ProtectedError):
        node.delete()


def test_a_deleted_row_would_leave_no_labels_behind() -> None:
    node = make_node()
    node.label_rows.create(key="site", value="berlin", source=LabelSource.ADMIN)
    _, by_model = node.delete()
    assert by_model["nodes.NodeLabel"] == 1
