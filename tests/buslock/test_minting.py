import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.serializers import serialize

from clustermgr.conf import ClusterSettings
from clustermgr.lib.natsauth import Key, Kind, decode
from nodes.models import BackendNode, ClusterEvent, NodeCredential
from nodes.services import credentials, registration
from nodes.states import Liveness
from nodes.wire.permissions import permissions_of
from nodes.wire.subjects import Role
from tests.api.clients import Caller, Worker, read
from tests.factories import NOW, make_node, make_pending, make_request, make_token

pytestmark = pytest.mark.django_db

KEYS = {"nats_jwt", "nats_user_seed"}


def test_without_an_account_nothing_is_minted(worker: Worker, root: Caller) -> None:
    node_id = worker.joined()
    assert not KEYS & set(read(root.post(f"/api/nodes/{node_id}/approve")))
    assert not KEYS & set(read(worker.register()))
    assert not NodeCredential.objects.exists()


def test_a_pending_node_gets_none_and_an_approved_one_gets_its_own(
    minting: Key, worker: Worker, root: Caller
) -> None:
    pending = read(worker.register())
    assert (pending["status"], KEYS & set(pending)) == ("pending", set())
    approved = read(root.post(f"/api/nodes/{pending['id']}/approve"))
    again = read(worker.register())
    users = set()
    for reply in (approved, again):
        claims = decode(reply["nats_jwt"])
        user = Key.from_seed(reply["nats_user_seed"], Kind.USER)
        assert (claims["iss"], claims["sub"]) == (minting.public, user.public)
        users.add(user.public)
    assert len(users) == 2, "a key is minted once"
    assert set(NodeCredential.objects.values_list("public_key", flat=True)) == users


def test_the_token_says_what_localai_expects(minting: Key, settings: Any) -> None:
    node = make_node()
    claims = decode(credentials.mint(node, now=NOW).jwt)
    may = permissions_of(Role.WORKER, node.pk, answer_within=timedelta(minutes=20)).claims()
    assert claims["name"] == f"localai-backend-{node.pk}"
    assert claims["exp"] - claims["iat"] == 24 * 3600
    assert claims["nats"]["issuer_account"] == minting.public
    assert {key: claims["nats"][key] for key in may} == may


def test_an_agent_gets_an_agents_permissions(minting: Key) -> None:
    node = make_node(node_type="agent", address="")
    claims = decode(credentials.mint(node, now=NOW).jwt)
    assert claims["name"] == f"localai-agent-{node.pk}"
    assert "resp" not in claims["nats"]
    assert "_INBOX.>" not in claims["nats"]["sub"]["allow"]


def test_whoever_a_token_lets_in_gets_one_at_once(minting: Key) -> None:
    token = make_token(auto_approve=True)
    node = registration.register(make_request(), token=token, now=NOW)
    assert credentials.mint(node, now=NOW).seed


def test_who_was_sent_away_gets_none(minting: Key) -> None:
    retired = make_node(retired_at=NOW, liveness=Liveness.OFFLINE)
    stale = BackendNode(pk=retired.pk, name=retired.name, approved_at=NOW)
    assert credentials.mint(stale, now=NOW) == credentials.Credentials()
    assert credentials.mint(make_pending(), now=NOW) == credentials.Credentials()


def test_the_lifetime_is_a_setting(minting: Key, settings: Any) -> None:
    ttl = timedelta(seconds=3)
    settings.CLUSTER = replace(settings.CLUSTER, nats_worker_jwt_ttl=ttl)
    credentials.mint(make_node(), now=NOW)
    assert NodeCredential.objects.get().expires_at == NOW + ttl


def test_the_seed_is_kept_nowhere_and_shown_in_no_repr(minting: Key) -> None:
    granted = credentials.mint(make_node(), now=NOW)
    rows = serialize("json", [*NodeCredential.objects.all(), *ClusterEvent.objects.all()])
    for secret in (granted.seed, granted.jwt, minting.seed):
        assert secret not in rows + repr(granted)
    event = ClusterEvent.objects.get(kind="node.credential_issued")
    assert event.after["public_key"] == NodeCredential.objects.get().public_key
    assert "SU" not in json.dumps(event.before)


def test_an_answer_may_take_as_long_as_the_longest_wait(minting: Key, settings: Any) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, upgrade_timeout=timedelta(hours=2))
    claims = decode(credentials.mint(make_node(), now=NOW).jwt)
    assert claims["nats"]["resp"]["ttl"] == (2 * 3600 + 300) * 10**9


def test_every_timeout_counts_for_the_longest_wait() -> None:
    assert ClusterSettings().longest_answer == timedelta(minutes=15)


def test_what_expired_unnoticed_is_forgotten_after_a_week(minting: Key) -> None:
    node = make_node()
    credentials.mint(node, now=NOW)
    credentials.revoke(node, by="ada", reason="", now=NOW)
    credentials.mint(node, now=NOW)
    day = timedelta(days=1)
    assert credentials.forget_old(now=NOW + 7 * day) == 0
    assert credentials.forget_old(now=NOW + 9 * day) == 1
    assert NodeCredential.objects.get().revoked_by == "ada"
