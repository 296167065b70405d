from datetime import datetime, timedelta
from typing import Any

import pytest

from clustermgr.lib.errors import Conflict, Forbidden, InvalidInput, Unauthenticated
from nodes.models import BackendNode, ClusterEvent, JoinToken
from nodes.services import jointokens, registration
from nodes.services.jointokens import Terms
from nodes.states import Liveness, NodeType, Severity
from tests.factories import NOW, make_node, make_request, make_token

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)
NEUTRAL = "This registration token is unknown, expired or revoked."


def test_a_secret_is_shown_once_and_kept_as_a_digest() -> None:
    token, secret = jointokens.issue("rack 7", by="ada", now=NOW)
    assert secret.startswith("jt_")
    assert len(secret) > 40
    assert secret not in str(JoinToken.objects.filter(pk=token.pk).values())
    assert secret not in str(list(ClusterEvent.objects.values()))
    assert ClusterEvent.objects.get().actor == "ada"


def test_the_holder_of_the_secret_is_known_by_it() -> None:
    token, secret = jointokens.issue("rack 7", by="ada", now=NOW)
    assert jointokens.authenticate(secret, source="10.0.0.1", now=LATER) == token
    token.refresh_from_db()
    assert token.last_used_at == LATER


def test_last_used_is_written_once_a_minute() -> None:
    token, secret = jointokens.issue("rack 7", by="ada", now=NOW)
    for second in (0, 10, 59):
        jointokens.authenticate(secret, source="a", now=NOW + timedelta(seconds=second))
    token.refresh_from_db()
    assert token.last_used_at == NOW


@pytest.mark.parametrize(
    "ending",
    [
        {"expires_at": NOW + timedelta(minutes=1)},
        {"revoked_at": NOW, "revoked_by": "ada"},
        {"digest": "0" * 64},
    ],
)
def test_unknown_expired_and_revoked_sound_the_same(ending: dict[str, Any]) -> None:
    token, secret = jointokens.issue("rack 7", by="ada", now=NOW)
    JoinToken.objects.filter(pk=token.pk).update(**ending)
    with pytest.raises(Unauthenticated) as refusal:
        jointokens.authenticate(secret, source="10.0.0.1", now=LATER)
    assert str(refusal.value) == NEUTRAL
    event = ClusterEvent.objects.get(kind="join.refused")
    assert (event.severity, event.actor) == (Severity.ATTENTION, "source 10.0.0.1")
    assert secret not in event.reason


@pytest.mark.parametrize("secret", ["", "jt_", "\ud800", "\x00", "ä" * 5000])
def test_a_strange_secret_is_just_a_wrong_one(secret: str) -> None:
    with pytest.raises(Unauthenticated):
        jointokens.authenticate(secret, source="10.0.0.1", now=NOW)


def test_an_expired_token_that_is_still_used_is_named_to_the_operator() -> None:
    token, secret = jointokens.issue(
        "rack 7", by="ada", now=NOW, terms=Terms(expires_at=NOW + timedelta(minutes=1))
    )
    with pytest.raises(Unauthenticated):
        jointokens.authenticate("wrong", source="10.0.0.1", now=LATER)
    with pytest.raises(Unauthenticated):
        jointokens.authenticate(secret, source="10.0.0.1", now=LATER)
    event = ClusterEvent.objects.get(subject=f"token {token.name}")
    assert event.reason == "The token rack 7 expired on 2030-01-01 12:01. It is still being used."


def test_revoking_twice_is_once() -> None:
    token = make_token()
    jointokens.revoke(token, by="ada", now=NOW)
    jointokens.revoke(token, by="bob", now=LATER)
    assert (token.revoked_by, token.revoked_at) == ("ada", NOW)
    assert ClusterEvent.objects.get().kind == "token.revoked"


def test_a_token_acts_only_on_the_nodes_that_joined_with_it() -> None:
    mine, other = make_token(), make_token()
    node = make_node(join_token=mine)
    assert jointokens.may_act_on(mine, node)
    assert not jointokens.may_act_on(other, node)
    assert not jointokens.may_act_on(mine, make_node("orphan"))


def test_a_one_machine_token_belongs_to_the_first_name() -> None:
    token = make_token(one_machine=True)
    registration.register(make_request("gpu-1"), token=token, now=NOW)
    registration.register(make_request("gpu-1"), token=token, now=LATER)
    with pytest.raises(Forbidden, match="belongs to another machine than gpu-2"):
        registration.register(make_request("gpu-2"), token=token, now=LATER)
    assert BackendNode.objects.get().name == "gpu-1"
    assert ClusterEvent.objects.get(kind="join.refused").subject == "gpu-2"


def test_a_refused_registration_does_not_bind_the_token() -> None:
    token = make_token(one_machine=True)
    make_node("gpu-1", join_token=make_token())
    with pytest.raises(Forbidden):
        registration.register(make_request("gpu-1"), token=token, now=NOW)
    assert JoinToken.objects.get(pk=token.pk).bound_name == ""


def test_a_token_admits_only_the_types_it_names() -> None:
    token = make_token(allowed_types=[NodeType.AGENT])
    with pytest.raises(Forbidden, match="does not admit nodes of type backend"):
        registration.register(make_request(), token=token, now=NOW)
    assert not BackendNode.objects.exists()


def test_a_full_token_admits_nobody_new_and_everybody_old() -> None:
    token = make_token(max_nodes=1)
    registration.register(make_request("gpu-1"), token=token, now=NOW)
    with pytest.raises(Forbidden, match="admits 1 nodes, all have joined"):
        registration.register(make_request("gpu-2"), token=token, now=NOW)
    registration.register(make_request("gpu-1"), token=token, now=LATER)
    assert BackendNode.objects.count() == 1


def test_a_retired_node_gives_its_place_back() -> None:
    token = make_token(max_nodes=1)
    make_node("gpu-1", join_token=token, retired_at=NOW, liveness=Liveness.OFFLINE)
    assert registration.register(make_request("gpu-2"), token=token, now=NOW).name == "gpu-2"


@pytest.mark.parametrize(
    ("name", "terms", "sentence"),
    [
        ("", Terms(), "needs a name"),
        ("x" * 101, Terms(), "at most 100"),
        ("a\x00", Terms(), "control characters"),
        ("x", Terms(max_nodes=0), "max_nodes"),
        ("x", Terms(max_nodes=2**31), "max_nodes"),
        ("x", Terms(expires_at=datetime(2029, 1, 1, tzinfo=NOW.tzinfo)), "expired before"),
        ("x", Terms(labels={"k" * 129: ""}), "A label key"),
    ],
)
def test_senseless_terms_are_refused(name: str, terms: Terms, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        jointokens.issue(name, by="ada", now=NOW, terms=terms)


def test_two_tokens_cannot_share_a_name() -> None:
    jointokens.issue("rack 7", by="ada", now=NOW)
    with pytest.raises(Conflict, match="already is a join token named rack 7"):
        jointokens.issue("rack 7", by="ada", now=NOW)
    assert ClusterEvent.objects.count() == 1
