import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import nats
import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from nats.aio.client import RawCredentials

from clustermgr.lib.bus.accounts import AccountServer, account_server
from clustermgr.lib.natsauth import Key, Kind
from clustermgr.lib.natsauth.claims import credentials_file
from nodes import tasks
from nodes.models import BackendNode, BusAccount, ClusterEvent, NodeCredential
from nodes.services import credentials, registration, retirement, revocation
from nodes.states import Severity
from nodes.wire.subjects import LIST_BACKENDS
from tests.api.clients import Caller, read
from tests.contract.nats_server import Server
from tests.contract.responder import responding
from tests.factories import NOW, make_node, make_request, make_token
from tests.services import until

# The push must see committed rows, and must not run inside a test's transaction: the bus refuses.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]


def now() -> datetime:
    return datetime.now(UTC)


def online(server: Server, node: BackendNode, stack: ExitStack) -> str:
    """Connect a worker of `node` and tell its public key."""
    granted = credentials.mint(node, now=now())
    creds = RawCredentials(credentials_file(granted.jwt, granted.seed))
    subject = LIST_BACKENDS.of(node.pk)
    stack.enter_context(responding(server.url, subject, user_credentials=creds))
    public = str(node.credentials.latest("id").public_key)
    assert public in server.users()
    return public


def revocations(server: Server) -> dict[str, int]:
    with account_server(server.settings) as account:
        known: dict[str, int] = account.read()["nats"].get("revocations", {})
        return known


def test_a_retired_nodes_connection_is_cut_and_no_other(managed: Server) -> None:
    gone, stays = make_node("gone"), make_node("stays")
    with ExitStack() as stack:
        theirs, others = online(managed, gone, stack), online(managed, stays, stack)
        retirement.retire(gone, by="ada", reason="sold", now=now())
        tasks.push_revocations()
        until(lambda: theirs not in managed.users())
        assert others in managed.users()
    row = NodeCredential.objects.get(public_key=theirs)
    assert (row.revoked_by, row.revoke_reason) == ("ada", "gone was retired.")
    assert row.cut_off_at is not None
    account = BusAccount.objects.get()
    assert (account.told_at is not None, account.trouble) == (True, "")


def test_who_is_readmitted_comes_back_with_a_new_credential(managed: Server) -> None:
    token = make_token()
    node = make_node(join_token=token)
    with ExitStack() as stack:
        old = online(managed, node, stack)
        retirement.retire(node, by="ada", reason="", now=now())
        tasks.push_revocations()
        until(lambda: old not in managed.users())
        retirement.readmit(node, by="ada", now=now())
        back = registration.register(make_request(), token=token, now=now())
        assert credentials.mint(back, now=now()).jwt == ""
        registration.approve(back, by="ada", now=now())
        assert online(managed, back, stack) in managed.users()
        assert old not in managed.users()


def test_a_revocation_survives_a_restart_of_the_server(managed: Server) -> None:
    node = make_node()
    granted = credentials.mint(node, now=now())
    credentials.revoke(node, by="ada", reason="leaked", now=now())
    tasks.push_revocations()
    managed.stop()
    managed.start()
    creds = RawCredentials(credentials_file(granted.jwt, granted.seed))
    with pytest.raises(nats.errors.Error, match="Authorization Violation"):
        asyncio.run(_connect(managed.url, creds))


async def _connect(url: str, creds: RawCredentials) -> None:
    async def quiet(error: Exception) -> None:
        pass

    await nats.connect(url, user_credentials=creds, allow_reconnect=False, error_cb=quiet)


def test_the_doorbell_rings_after_the_commit_and_only_if_there_is_something(
    managed: Server, queued: list[Any]
) -> None:
    node = make_node()
    retirement.retire(make_node("other"), by="ada", reason="", now=now())
    assert queued == []
    credentials.mint(node, now=now())
    assert credentials.revoke(node, by="ada", reason=" leaked ", now=now()) == 1
    assert credentials.revoke(node, by="bob", reason="", now=now()) == 0
    assert queued == [("nodes.push_revocations",)]
    event = ClusterEvent.objects.get(kind="node.credentials_revoked")
    assert (event.actor, event.reason, event.after) == ("ada", "leaked", {"credentials": 1})


def test_releasing_the_token_cuts_off_the_machine_behind_it(managed: Server) -> None:
    node = make_node(join_token=make_token())
    credentials.mint(node, now=now())
    retirement.release_token(node, by="ada", now=now())
    assert not NodeCredential.objects.live(now()).exists()


def test_a_server_that_is_away_is_told_about_and_told_later(managed: Server) -> None:
    node = make_node()
    with ExitStack() as stack:
        public = online(managed, node, stack)
        retirement.retire(node, by="ada", reason="", now=now())
        managed.stop()
        for _ in range(2):
            tasks.push_revocations()
        trouble = BusAccount.objects.get()
        assert trouble.trouble.startswith("We are cut off from NATS")
        event = ClusterEvent.objects.get(kind="bus.revocation_failed")
        assert (event.severity, event.subject) == (Severity.ATTENTION, "NATS")
        assert credentials.standing(node, now=now()).still_open == 1
        managed.start()
        tasks.push_revocations()
        assert public in revocations(managed)
    assert BusAccount.objects.get().trouble == ""
    assert credentials.standing(node, now=now()).still_open == 0


def test_the_node_page_says_that_it_is_not_cut_off_yet(
    managed: Server, client: Client, superuser: User
) -> None:
    node = make_node()
    credentials.mint(node, now=now())
    client.force_login(superuser)
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    assert "Credentials for the bus" in client.get(page).content.decode()
    managed.stop()
    retirement.retire(node, by="ada", reason="", now=now())
    tasks.push_revocations()
    text = client.get(page).content.decode()
    assert "Not cut off" in text
    assert "We are cut off from NATS" in text


def test_without_the_operators_key_it_says_what_is_missing(managed: Server, settings: Any) -> None:
    node = make_node()
    credentials.mint(node, now=now())
    settings.CLUSTER = replace(managed.settings, nats_operator_seed="")
    credentials.revoke(node, by="ada", reason="", now=now())
    tasks.push_revocations()
    assert "CLUSTER_NATS_OPERATOR_SEED" in BusAccount.objects.get().trouble


def test_a_key_that_did_not_sign_the_account_does_not_sign_it_now(
    managed: Server, settings: Any
) -> None:
    stranger = Key.generate(Kind.OPERATOR)
    settings.CLUSTER = replace(managed.settings, nats_operator_seed=stranger.seed)
    public = _revoked(make_node())
    tasks.push_revocations()
    assert BusAccount.objects.get().trouble.startswith("CLUSTER_NATS_OPERATOR_SEED is not")
    assert public not in revocations(managed)


def test_what_somebody_else_put_into_the_account_stays(managed: Server) -> None:
    with account_server(managed.settings) as account:
        claims = account.read()
        nats_ = {**claims["nats"], "revocations": {"*": 5, "UFOREIGN": 7}, "description": "ours"}
        account.replace({**claims, "nats": nats_}, now=now())
    node = make_node()
    public = _revoked(node)
    tasks.push_revocations()
    known = revocations(managed)
    assert (known["*"], known["UFOREIGN"]) == (5, 7)
    assert public in known
    with account_server(managed.settings) as account:
        assert account.read()["nats"]["description"] == "ours"


def test_what_has_expired_is_no_longer_listed(managed: Server) -> None:
    old = _revoked(make_node("old"))
    tasks.push_revocations()
    assert old in revocations(managed)
    NodeCredential.objects.update(issued_at=NOW - timedelta(days=9999), expires_at=now())
    fresh = _revoked(make_node("fresh"))
    tasks.push_revocations()
    assert set(revocations(managed)) == {fresh}


def test_a_server_that_lost_its_memory_is_mended_by_the_tick(managed: Server) -> None:
    public = _revoked(make_node())
    tasks.push_revocations()
    managed.stop()
    assert managed.nats.keys
    shutil.rmtree(managed.nats.keys.home / "accounts")
    managed.start()
    assert revocations(managed) == {}
    tasks.push_revocations()
    assert public in revocations(managed)


def test_a_clock_that_was_ahead_does_not_save_a_credential(managed: Server) -> None:
    node = make_node()
    ahead = now() + timedelta(minutes=2)
    credentials.mint(node, now=ahead)
    credentials.revoke(node, by="ada", reason="", now=now())
    tasks.push_revocations()
    [at] = revocations(managed).values()
    assert at >= int(ahead.timestamp())


def test_nothing_to_revoke_asks_nobody(managed: Server) -> None:
    def never() -> AbstractContextManager[AccountServer]:
        raise AssertionError("asked")

    assert revocation.push(never, now=now())


def test_of_two_pushes_that_overtake_each_other_the_rows_win(managed: Server) -> None:
    first = _revoked(make_node("first"))
    second: list[str] = []
    connect = partial(account_server, configured.CLUSTER)

    class Slow:
        """Reads, is overtaken by a whole other push, and only then writes what it read."""

        def __init__(self, account: AccountServer) -> None:
            self._account = account

        def read(self) -> dict[str, Any]:
            return self._account.read()

        def replace(self, claims: dict[str, Any], *, now: datetime) -> None:
            if not second:
                second.append(_revoked(make_node("second")))
                assert revocation.push(connect, now=now)
                assert second[0] in revocations(managed)
            self._account.replace(claims, now=now)

    @contextmanager
    def slowly() -> Iterator[Slow]:
        with connect() as account:
            yield Slow(account)

    assert revocation.push(slowly, now=now())
    assert set(revocations(managed)) == {first, second[0]}


def test_the_api_revokes_for_whoever_may_retire(managed: Server, root: Caller) -> None:
    node = make_node()
    credentials.mint(node, now=now())
    reply = root.post(f"/api/nodes/{node.pk}/revoke-credentials", {"reason": "leaked"})
    assert (reply.status_code, read(reply)) == (200, {"message": "credentials revoked"})
    assert NodeCredential.objects.get().revoke_reason == "leaked"


def _revoked(node: BackendNode) -> str:
    credentials.mint(node, now=now())
    credentials.revoke(node, by="ada", reason="", now=now())
    return str(node.credentials.latest("id").public_key)
