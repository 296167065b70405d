from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from tests.contract import certificates
from tests.contract.certificates import needs_openssl
from tests.contract.nats_server import Server
from tests.contract.raw_server import raw_server
from tests.services import until


@contextmanager
def tls_server(home: Path, **changes: object) -> Iterator[tuple[Server, ClusterSettings]]:
    ca = certificates.authority(home)
    ours = certificates.issue(home, "server", by=ca)
    theirs = certificates.issue(home, "client", by=ca)
    files = {"cert_file": ours.cert, "key_file": ours.key, "ca_file": ca.cert}
    with Server(home, tls={**files, **changes}, allow_non_tls=not changes) as server:
        paths = {"nats_ca": ca.cert, "nats_cert": theirs.cert, "nats_key": theirs.key}
        yield server, ClusterSettings(nats_url=server.url, **paths)  # type: ignore[arg-type]


@needs_openssl
def test_mutual_tls_with_a_private_authority(tmp_path: Path) -> None:
    with tls_server(tmp_path, verify=True) as (server, settings):
        bus = NatsBus(settings)
        bus.publish("any", b"")
        assert [row["tls_version"] for row in server.connections()] == ["1.3"]
        bus.close()


@needs_openssl
def test_a_server_that_leaves_tls_to_the_client_is_spoken_to_in_tls(tmp_path: Path) -> None:
    with tls_server(tmp_path) as (server, settings):
        bus = NatsBus(replace(settings, nats_cert="", nats_key=""))
        bus.publish("any", b"")
        assert [row["tls_version"] for row in server.connections()] == ["1.3"]
        bus.close()


@needs_openssl
def test_a_certificate_of_a_stranger_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with tls_server(tmp_path, verify=False) as (_, settings):
        bus = NatsBus(replace(settings, nats_ca=certificates.authority(elsewhere).cert))
        until(lambda: "certificate verify failed" in bus.status().reason)
        bus.close()


def test_a_missing_file_is_named_and_looked_for_again(server: Server, tmp_path: Path) -> None:
    bus = NatsBus(replace(server.settings, nats_credentials=str(tmp_path / "user.creds")))
    until(lambda: "No such file" in bus.status().reason)
    assert "user.creds" in bus.status().reason
    bus.close()


@needs_openssl
@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_no_password_goes_to_a_server_that_cannot_encrypt(tmp_path: Path, scheme: str) -> None:
    ca = "" if scheme == "tls" else certificates.authority(tmp_path).cert
    with raw_server() as (address, lines):
        url = f"{scheme}://user:hush@{address}"
        bus = NatsBus(ClusterSettings(nats_url=url, nats_ca=ca))
        until(lambda: bus.status().reason == "secure connection not available")
        bus.close()
    assert lines == []
