from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from clustermgr import tokens
from clustermgr.lib.natsauth import Key, Kind
from clustermgr.lib.natsauth.keyring import Keyring
from nodes.services import environment
from tests.api.clients import SECRET, Caller, Worker
from tests.contract.nats_server import Server
from tests.factories import NOW


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in operator mode, for tests that leave it as it is."""
    with Server(home := tmp_path_factory.mktemp("nats"), keys=_keys(home)) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, keys=_keys(tmp_path)) as server:
        yield server


def _keys(home: Path) -> Keyring:
    return Keyring.open(home / "keys", now=datetime.now(UTC))


@pytest.fixture
def managed(own_server: Server, settings: Any) -> Server:
    """The server that this Django is configured for, and may revoke on."""
    settings.CLUSTER = own_server.settings
    return own_server


@pytest.fixture
def minting(settings: Any) -> Key:
    """Minting without a server; the account that signs."""
    account = Key.generate(Kind.ACCOUNT)
    settings.CLUSTER = replace(settings.CLUSTER, nats_account_seed=account.seed)
    return account


@pytest.fixture
def worker(db: None, queued: list[tuple[Any, ...]]) -> Worker:
    environment.sync(SECRET, auto_approve=False, now=NOW)
    return Worker(SECRET)


@pytest.fixture
def root(superuser: User) -> Caller:
    return Caller(tokens.issue(superuser, name="tests", now=NOW)[1])
