from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clustermgr.embedded.nats import Tls
from clustermgr.embedded.up import CannotStart, Options
from clustermgr.lib.bus import NatsBus
from clustermgr.lib.natsauth.keyring import Keyring
from tests.contract import certificates
from tests.contract.certificates import Certificate, needs_openssl
from tests.contract.nats_server import Server
from tests.services import until

pytestmark = needs_openssl


def options(home: Path, ca: Certificate, *, mutual: bool) -> Options:
    server = certificates.issue(home, "server", by=ca)
    env = {"CLUSTER_NATS_SERVER_CERT": server.cert, "CLUSTER_NATS_SERVER_KEY": server.key}
    return Options.from_env({**env, **({"CLUSTER_NATS_SERVER_CA": ca.cert} if mutual else {})})


def test_the_embedded_server_speaks_tls_when_it_has_a_certificate(tmp_path: Path) -> None:
    ca = certificates.authority(tmp_path)
    tls = options(tmp_path, ca, mutual=False).nats_tls
    keys = Keyring.open(tmp_path / "keys", now=datetime.now(UTC))
    with Server(tmp_path, keys=keys, encrypted=tls) as server:
        assert server.url.startswith("tls://")
        ours = NatsBus(replace(server.settings, nats_ca=ca.cert))
        until(lambda: ours.status().connected)
        assert [row["tls_version"] for row in server.connections()] == ["1.3"]
        ours.close()
        unknown = NatsBus(server.settings)
        until(lambda: "certificate verify failed" in unknown.status().reason.lower())
        unknown.close()


def test_with_an_authority_it_wants_a_certificate_of_every_client(tmp_path: Path) -> None:
    ca = certificates.authority(tmp_path)
    client = certificates.issue(tmp_path, "client", by=ca)
    tls = options(tmp_path, ca, mutual=True).nats_tls
    keys = Keyring.open(tmp_path / "keys", now=datetime.now(UTC))
    with Server(tmp_path, keys=keys, encrypted=tls) as server:
        trusting = replace(server.settings, nats_ca=ca.cert)
        bare = NatsBus(trusting)
        until(lambda: bare.status().reason not in ("", "connecting"))
        assert not bare.status().connected
        bare.close()
        ours = NatsBus(replace(trusting, nats_cert=client.cert, nats_key=client.key))
        until(lambda: ours.status().connected)
        ours.close()


@pytest.mark.parametrize("given", ["CERT", "KEY", "CA"])
def test_half_a_certificate_is_refused_in_a_sentence(given: str) -> None:
    with pytest.raises(CannotStart, match="CLUSTER_NATS_SERVER_CERT and CLUSTER_NATS_SERVER_KEY"):
        Options.from_env({f"CLUSTER_NATS_SERVER_{given}": "/x.pem"})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = {f"CLUSTER_NATS_SERVER_{name}": str(tmp_path / name) for name in ("CERT", "KEY")}
    with pytest.raises(CannotStart, match=f"There is no file {tmp_path}/CERT"):
        Options.from_env(missing)


def test_without_any_there_is_none() -> None:
    assert Options.from_env({}).nats_tls is None
    assert Tls(cert=Path("c"), key=Path("k")).configuration() == {"cert_file": "c", "key_file": "k"}
