from datetime import timedelta
from uuid import uuid4

import pytest

from clustermgr.lib.errors import DomainError, Forbidden, Gone, NotFound, Unauthenticated
from nodes.models import ClusterEvent
from nodes.services import admission
from nodes.states import Liveness, Severity
from tests.factories import NOW, make_node, make_token

pytestmark = pytest.mark.django_db


def test_a_worker_speaks_for_its_own_node() -> None:
    token = make_token()
    node = make_node(join_token=token)
    assert admission.node_of(node.pk, token=token, now=NOW) == node
    assert not ClusterEvent.objects.exists()


def test_a_beat_for_an_unknown_id_does_not_go_unnoticed() -> None:
    node_id = uuid4()
    with pytest.raises(NotFound, match=str(node_id)):
        admission.node_of(node_id, token=make_token(), now=NOW)
    event = ClusterEvent.objects.get()
    assert (event.kind, event.severity, event.subject) == (
        "worker.refused",
        Severity.ATTENTION,
        str(node_id),
    )


def test_a_beat_for_a_retired_node_does_not_go_unnoticed() -> None:
    token = make_token()
    node = make_node(join_token=token, retired_at=NOW, liveness=Liveness.OFFLINE)
    with pytest.raises(Gone, match="gpu-1 was retired"):
        admission.node_of(node.pk, token=token, now=NOW)
    assert node.events.get().severity == Severity.ATTENTION


def test_a_worker_does_not_act_on_another_tokens_node() -> None:
    node = make_node(join_token=make_token())
    with pytest.raises(Forbidden, match="token-2 may not act on gpu-1"):
        admission.node_of(node.pk, token=make_token(), now=NOW)
    assert node.events.get().actor == "token token-2"


def test_a_flood_of_invented_ids_is_one_event_a_minute() -> None:
    token = make_token()
    for second in range(0, 120, 5):
        with pytest.raises(DomainError):
            admission.node_of(uuid4(), token=token, now=NOW + timedelta(seconds=second))
    assert ClusterEvent.objects.count() == 2


@pytest.mark.parametrize(("told", "sentence"), [("", "required"), ("jt_other", "invalid")])
def test_a_body_with_another_token_is_refused_and_remembered(told: str, sentence: str) -> None:
    token = make_token()
    with pytest.raises(Unauthenticated, match=sentence):
        admission.check_repeated(told, secret="jt_right", token=token, now=NOW)
    event = ClusterEvent.objects.get()
    assert (event.kind, event.severity) == ("join.refused", Severity.ATTENTION)
