from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NotConnected
from clustermgr.lib.natsauth import SERVICE, Key, Kind, Permissions, encode, user_claims
from clustermgr.lib.natsauth.claims import credentials_file
from clustermgr.lib.natsauth.keyring import Keyring
from tests.contract.nats_server import Server
from tests.contract.responder import responding
from tests.services import until

SOON = timedelta(minutes=1)

# What LocalAI itself lets the worker of a node do
WORKER = Permissions(
    publish=("nodes.n1.backend.install.*.progress", "_INBOX.>"),
    subscribe=("nodes.n1.>", "_INBOX.>"),
)


@pytest.fixture
def keys(tmp_path: Path) -> Keyring:
    return Keyring.open(tmp_path / "keys", now=datetime.now(UTC))


@pytest.fixture
def strict_server(tmp_path: Path, keys: Keyring) -> Iterator[Server]:
    with Server(tmp_path, keys=keys) as server:
        yield server


def write_credentials(
    path: Path, keys: Keyring, permissions: Permissions, *, lasting: timedelta | None = None
) -> str:
    now, user = datetime.now(UTC), Key.generate(Kind.USER)
    ends = now + lasting if lasting else None
    claims = user_claims(permissions, account=keys.account.public, expires_at=ends)
    token = encode(claims, subject=user.public, name=path.stem, by=keys.account, now=now)
    path.write_text(credentials_file(token, user.seed))
    return str(path)


def creds_settings(server: Server, path: str) -> ClusterSettings:
    return ClusterSettings(nats_url=f"nats://127.0.0.1:{server.nats.port}", nats_credentials=path)


def test_a_jwt_opens_the_door_and_a_minted_worker_can_answer(
    tmp_path: Path, keys: Keyring, strict_server: Server
) -> None:
    ours = write_credentials(tmp_path / "service.creds", keys, SERVICE)
    theirs = write_credentials(tmp_path / "worker.creds", keys, WORKER)
    settings = creds_settings(strict_server, ours)
    bus = NatsBus(settings)
    with responding(settings.nats_url, "nodes.n1.>", user_credentials=theirs):
        assert bus.request("nodes.n1.backend.list", b"{}", timeout=SOON) == b"{}"
    bus.publish("nodes.n1.stop", b"")
    bus.close()


def test_an_expired_jwt_is_replaced_without_a_restart(
    tmp_path: Path, keys: Keyring, strict_server: Server
) -> None:
    path = tmp_path / "service.creds"
    write_credentials(path, keys, SERVICE, lasting=timedelta(seconds=5))
    bus = NatsBus(creds_settings(strict_server, str(path)))
    bus.publish("nodes.n1.stop", b"")
    until(lambda: not bus.status().connected)
    until(lambda: "authorization violation" in bus.status().reason.lower())
    write_credentials(path, keys, SERVICE)
    until(lambda: bus.status().connected)
    bus.publish("nodes.n1.stop", b"")
    bus.close()


def test_a_file_that_holds_no_credentials_is_told_and_harms_nothing(
    tmp_path: Path, keys: Keyring, strict_server: Server
) -> None:
    path = tmp_path / "service.creds"
    path.write_text("half a file\n")
    bus = NatsBus(creds_settings(strict_server, str(path)))
    until(lambda: "invalid user credentials" in bus.status().reason)
    write_credentials(path, keys, SERVICE)
    until(lambda: bus.status().connected)
    bus.close()


def test_a_wrong_password_is_a_reason_that_does_not_repeat_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"nats://clustermgr:hush-hush@127.0.0.1:{server.nats.port}"
    bus = NatsBus(replace(server.settings, nats_url=wrong))
    until(lambda: bool(bus.status().reason))
    with pytest.raises(NotConnected) as refusal:
        bus.request("any", b"", timeout=timedelta(seconds=0.5))
    status = bus.status()
    bus.close()
    assert not status.connected
    assert "Authorization Violation" in status.reason
    assert "bus not connected" in caplog.text
    assert "hush" not in f"{status} {refusal.value} {caplog.text} {caplog.records}"


def test_a_token_may_stand_where_the_user_stands(tmp_path: Path) -> None:
    with Server(tmp_path, authorization={"token": "s3cr:t"}) as server:
        bus = NatsBus(ClusterSettings(nats_url=f"nats://s3cr%3At@127.0.0.1:{server.nats.port}"))
        bus.publish("any", b"")
        bus.close()
