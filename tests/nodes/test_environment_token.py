from datetime import timedelta

import pytest

from clustermgr.lib.errors import Conflict, Unauthenticated
from nodes.models import ClusterEvent, JoinToken
from nodes.services import environment, jointokens
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def sync(secret: str, *, auto_approve: bool = False) -> JoinToken | None:
    return environment.sync(secret, auto_approve=auto_approve, now=NOW)


def test_the_registration_token_is_a_join_token() -> None:
    token = sync("s3cret")
    assert jointokens.authenticate("s3cret", source="a", now=NOW) == token
    assert "s3c" not in str(list(JoinToken.objects.values()))


def test_starting_again_changes_nothing() -> None:
    assert sync("s3cret") == sync("s3cret")
    assert [event.kind for event in ClusterEvent.objects.all()] == ["token.issued"]


def test_nodes_follow_a_changed_value() -> None:
    old = sync("old")
    node = make_node(join_token=old)
    stranger = make_node("gpu-2", join_token=jointokens.issue("own", by="ada", now=NOW)[0])
    new = sync("new")
    node.refresh_from_db()
    stranger.refresh_from_db()
    assert node.join_token == new
    assert stranger.join_token != new
    with pytest.raises(Unauthenticated):
        jointokens.authenticate("old", source="a", now=NOW)
    assert ClusterEvent.objects.filter(kind="token.inherited", after={"nodes": 1}).exists()


def test_going_back_to_an_earlier_value_restores_it() -> None:
    old = sync("old")
    sync("new")
    assert sync("old") == old
    assert jointokens.authenticate("old", source="a", now=NOW) == old


def test_without_a_value_nobody_joins_by_it() -> None:
    node = make_node(join_token=sync("s3cret"))
    assert sync("") is None
    with pytest.raises(Unauthenticated):
        jointokens.authenticate("s3cret", source="a", now=NOW)
    assert sync("") is None
    fresh = sync("fresh")
    node.refresh_from_db()
    assert node.join_token == fresh


def test_what_an_operator_revoked_stays_revoked_after_a_restart() -> None:
    token = sync("leaked")
    assert token is not None
    jointokens.revoke(token, by="ada", now=NOW)
    assert sync("leaked") is None
    with pytest.raises(Unauthenticated):
        jointokens.authenticate("leaked", source="a", now=NOW)


def test_approving_by_itself_follows_the_setting_and_is_remembered() -> None:
    sync("s3cret")
    token = sync("s3cret", auto_approve=True)
    assert token is not None
    assert token.auto_approve
    assert ClusterEvent.objects.get(kind="token.changed").after == {"auto_approve": True}


def test_the_secret_of_another_token_is_refused() -> None:
    _, secret = jointokens.issue("rack 7", by="ada", now=NOW)
    with pytest.raises(Conflict, match="the secret of the join token rack 7"):
        sync(secret)
