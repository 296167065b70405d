import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from clustermgr.lib.natsauth import (
    SERVICE,
    BadSeed,
    BadToken,
    Key,
    Kind,
    decode,
    encode,
    user_claims,
)
from clustermgr.lib.natsauth.claims import credentials_file, read_credentials
from clustermgr.lib.natsauth.keyring import Keyring, write_new
from tests.factories import NOW

LATER = NOW + timedelta(days=1)


def contents(home: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in home.iterdir()}


def test_opened_twice_it_is_the_same_and_says_so(tmp_path: Path) -> None:
    first = Keyring.open(tmp_path / "keys", now=NOW)
    before = contents(first.home)
    second = Keyring.open(tmp_path / "keys", now=LATER)
    assert set(first.made) == set(before)
    assert second.made == ()
    assert contents(second.home) == before
    assert second.server_configuration(tmp_path) == first.server_configuration(tmp_path)


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    home = Keyring.open(tmp_path / "keys", now=NOW).home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}


def test_what_was_lost_is_made_again_and_nothing_else(tmp_path: Path) -> None:
    first = Keyring.open(tmp_path, now=NOW)
    kept = first.home / "account.seed"
    (tmp_path / "service.creds").unlink()
    second = Keyring.open(tmp_path, now=LATER)
    assert second.made == ("service.creds",)
    assert second.account.seed == kept.read_text().strip()


def test_credentials_of_an_earlier_version_allow_what_is_needed_now(tmp_path: Path) -> None:
    keys = Keyring.open(tmp_path, now=NOW)
    path, user = keys.service_credentials, Key.generate(Kind.USER)
    less = user_claims(replace(SERVICE, publish=("nodes.>",)), account=keys.account.public)
    token = encode(less, subject=user.public, name="earlier", by=keys.account, now=NOW)
    path.write_text(credentials_file(token, user.seed))
    assert Keyring.open(tmp_path, now=LATER).made == ("service.creds",)
    token, seed = read_credentials(path.read_text())
    assert decode(token)["nats"]["pub"] == {"allow": list(SERVICE.publish)}
    assert seed == user.seed
    assert Keyring.open(tmp_path, now=LATER).made == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_operators_own_key_signs_nothing_but_itself(tmp_path: Path) -> None:
    keys = Keyring.open(tmp_path, now=NOW)
    operator, account, system = map(decode, (keys.operator_jwt, keys.account_jwt, keys.system_jwt))
    assert operator["iss"] == operator["sub"] == keys.operator.public
    assert operator["nats"]["signing_keys"] == [keys.signing.public]
    assert (account["sub"], account["iss"]) == (keys.account.public, keys.signing.public)
    assert (system["sub"], system["iss"]) == (keys.system.public, keys.signing.public)
    assert keys.operator.seed not in str(keys.settings())
    assert str(tmp_path / "operator.seed") not in keys.settings().values()


def test_the_servers_configuration_holds_no_secret(tmp_path: Path) -> None:
    keys = Keyring.open(tmp_path, now=NOW)
    text = str(keys.server_configuration(tmp_path / "accounts"))
    for key in (keys.operator, keys.signing, keys.account, keys.system):
        assert key.seed not in text


def test_a_broken_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    Keyring.open(tmp_path, now=NOW)
    (tmp_path / "account.seed").write_text("half a seed")
    with pytest.raises(BadSeed):
        Keyring.open(tmp_path, now=LATER)
    assert (tmp_path / "account.seed").read_text() == "half a seed"


def test_a_broken_creds_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    Keyring.open(tmp_path, now=NOW)
    (tmp_path / "service.creds").write_text("-----BEGIN NATS USER JWT-----")
    with pytest.raises(BadToken):
        Keyring.open(tmp_path, now=LATER)


def test_of_many_writers_one_is_first_and_the_others_read_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        rings = list(pool.map(lambda _: Keyring.open(tmp_path, now=NOW), range(8)))
    assert len({ring.account.public for ring in rings}) == 1
    assert not write_new(tmp_path / "account.seed", "mine")
    assert not list(tmp_path.glob(".*"))
