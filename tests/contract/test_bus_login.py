import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NotConnected
from tests.contract.accounts import Operator
from tests.contract.nats_server import Server
from tests.contract.responder import responding
from tests.services import until

SOON = timedelta(seconds=5)

# What the control plane may do, and what LocalAI lets the worker of a node do.
SERVICE = {"pub": {"allow": ["nodes.>"]}, "sub": {"allow": ["nodes.>", "_INBOX.>"]}}
WORKER = {
    "pub": {"allow": ["nodes.n1.backend.install.*.progress", "_INBOX.>"]},
    "sub": {"allow": ["nodes.n1.>", "_INBOX.>"]},
}


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def strict_server(tmp_path: Path, operator: Operator) -> Iterator[Server]:
    with Server(tmp_path, **operator.configuration()) as server:
        yield server


def creds_settings(server: Server, path: str) -> ClusterSettings:
    return ClusterSettings(nats_url=f"nats://127.0.0.1:{server.nats.port}", nats_credentials=path)


def test_a_jwt_opens_the_door_and_a_minted_worker_can_answer(
    tmp_path: Path, operator: Operator, strict_server: Server
) -> None:
    ours = operator.write_credentials(tmp_path / "service.creds", nats=SERVICE)
    theirs = operator.write_credentials(tmp_path / "worker.creds", nats=WORKER)
    settings = creds_settings(strict_server, ours)
    bus = NatsBus(settings)
    with responding(settings.nats_url, "nodes.n1.>", user_credentials=theirs):
        assert bus.request("nodes.n1.backend.list", b"{}", timeout=SOON) == b"{}"
    bus.publish("nodes.n1.stop", b"")
    bus.close()


def test_an_expired_jwt_is_replaced_without_a_restart(
    tmp_path: Path, operator: Operator, strict_server: Server
) -> None:
    path = tmp_path / "service.creds"
    operator.write_credentials(path, nats=SERVICE, exp=int(time.time()) + 2)
    bus = NatsBus(creds_settings(strict_server, str(path)))
    bus.publish("nodes.n1.stop", b"")
    until(lambda: not bus.status().connected)
    until(lambda: "authorization violation" in bus.status().reason.lower())
    operator.write_credentials(path, nats=SERVICE)
    until(lambda: bus.status().connected)
    bus.publish("nodes.n1.stop", b"")
    bus.close()


def test_a_file_that_holds_no_credentials_is_told_and_harms_nothing(
    tmp_path: Path, operator: Operator, strict_server: Server
) -> None:
    path = tmp_path / "service.creds"
    path.write_text("half a file\n")
    bus = NatsBus(creds_settings(strict_server, str(path)))
    until(lambda: "invalid user credentials" in bus.status().reason)
    operator.write_credentials(path, nats=SERVICE)
    until(lambda: bus.status().connected)
    bus.close()


def test_a_wrong_password_is_a_reason_that_does_not_repeat_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = f"nats://clustermgr:hush-hush@127.0.0.1:{server.nats.port}"
    bus = NatsBus(replace(server.settings, nats_url=wrong))
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
