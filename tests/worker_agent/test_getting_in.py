"""Credentials and encryption: how a node proves who it is to NATS, and keeps being let in."""

import base64
import json
import time
from pathlib import Path

import pytest

from tests.contract import certificates
from tests.contract.certificates import needs_openssl
from tests.contract.nats_server import Server
from tests.contract.raw_server import raw_server
from tests.worker_agent.agents import living
from tests.worker_agent.scripted_manager import scripted_manager
from tests.worker_machine.loops import eventually, in_loop
from worker import joining
from worker.link import Address, Link
from worker.wire.credentials import Credentials

NOBODY_THERE = Address(url="nats://127.0.0.1:9")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SHORTEST", 0.02)


def token(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"header.{body}.signature"


@pytest.mark.parametrize(
    ("jwt", "ends"),
    [
        (token(exp=1_900_000_000), 1_900_000_000.0),
        (token(), None),
        (token(exp=0), None),
        (token(exp="soon"), None),
        ("", None),
        ("a.b", None),
        ("a.!!!.c", None),
        ("a.W10.c", None),
    ],
)
def test_the_end_of_a_credential_is_read_or_is_unknown(jwt: str, ends: float | None) -> None:
    assert Credentials(jwt=jwt, seed="SU").expires_at == ends


def test_a_seed_shows_nowhere() -> None:
    assert "SUSECRET" not in repr(Credentials(jwt="x", seed="SUSECRET"))


@in_loop
async def test_credentials_are_renewed_before_they_end() -> None:
    async with scripted_manager() as manager:
        brief = {"nats_jwt": token(exp=int(time.time()) + 1), "nats_user_seed": "SU"}
        lasting = {"nats_jwt": token(exp=int(time.time()) + 9000), "nats_user_seed": "SU"}
        known = {"id": manager.node_id, "status": "healthy"}
        manager.answers("register", 201, {**known, **brief})
        manager.then("register", 201, {**known, **lasting})
        async with living(manager.url, nats=NOBODY_THERE) as agent:
            await eventually(
                lambda: agent.known is not None and agent.known.nats_jwt == lasting["nats_jwt"]
            )
        first, second = manager.bodies("register")
        assert first["boot_id"] == second["boot_id"]  # a renewal, not a restart


@in_loop
async def test_one_that_nats_refuses_asks_the_manager_for_better_credentials(
    tmp_path: Path,
) -> None:
    with Server(tmp_path) as server:
        nobody = Address(url=f"nats://127.0.0.1:{server.nats.port}")
        async with scripted_manager() as manager, living(manager.url, nats=nobody) as agent:
            await eventually(lambda: manager.verbs().count("register") >= 2)
            assert "Authorization Violation" in agent.why_not_ready()


@needs_openssl
@in_loop
async def test_mutual_tls_with_a_private_authority(tmp_path: Path) -> None:
    ca = certificates.authority(tmp_path)
    ours = certificates.issue(tmp_path, "server", by=ca)
    theirs = certificates.issue(tmp_path, "client", by=ca)
    files = {"cert_file": ours.cert, "key_file": ours.key, "ca_file": ca.cert, "verify": True}
    with Server(tmp_path, tls=files) as server:
        address = Address(url=server.url, ca=ca.cert, cert=theirs.cert, key=theirs.key)
        async with scripted_manager() as manager, living(manager.url, nats=address) as agent:
            await eventually(lambda: agent.why_not_ready() == "")


@in_loop
async def test_no_password_goes_to_a_server_that_cannot_encrypt() -> None:
    with raw_server() as (where, lines):
        address = Address(url=f"tls://user:hush@{where}")
        async with scripted_manager() as manager, living(manager.url, nats=address) as agent:
            await eventually(lambda: agent.link is not None and bool(agent.link.trouble))
            assert agent.link is not None
            assert agent.link.trouble == "secure connection not available"
    assert lines == []


def test_an_address_shows_neither_user_nor_password() -> None:
    address = Address(url="nats://user:hush@a:4222, nats://user:hush@b:4222")
    assert "hush" not in repr(address)
    assert address.servers == ["nats://a:4222", "nats://b:4222"]
    assert address.options(None)["password"] == "hush"
    assert Address(url="nats://token@a:4222").options(None)["token"] == "token"
    assert not Link(address, node_id="n", credentials=lambda: None).connected
