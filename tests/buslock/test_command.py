import json
import subprocess
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.management import CommandError, call_command

from clustermgr.conf import ClusterSettings
from clustermgr.embedded.nats import binary
from clustermgr.lib.bus import NatsBus
from clustermgr.lib.natsauth import Key, Kind
from nodes.models import BusAccount
from nodes.services import credentials
from tests.contract.nats_server import Server
from tests.factories import NOW, make_node
from tests.services import free_port, until


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("nats_auth", *arguments, stdout=out)
    return out.getvalue()


def test_init_makes_everything_once_and_then_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "auth"
    first = said("init", "--dir", str(home))
    before = {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in home.iterdir()}
    second = said("init", "--dir", str(home))
    after = {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in home.iterdir()}
    assert before == after
    assert first.startswith(f"Made in {home}: operator.seed, ")
    assert second.startswith("Everything is there already; nothing was changed")
    for seed in home.glob("*.seed"):
        assert seed.read_text().strip() not in first + second


def test_what_init_makes_runs_a_server_for_a_manager_and_nobody_else(tmp_path: Path) -> None:
    home, port = tmp_path / "auth", free_port()
    words = said("init", "--dir", str(home), "--resolver-dir", str(tmp_path / "accounts"))
    lines = [line.strip().split("=", 1) for line in words.splitlines() if "CLUSTER_" in line]
    main = tmp_path / "server.conf"
    main.write_text(f'port: {port}\nhost: 127.0.0.1\ninclude "auth/nats-auth.conf"\n')
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([str(binary()), "-c", str(main)], stdout=log, stderr=log)
    try:
        env = {"CLUSTER_NATS_URL": f"nats://127.0.0.1:{port}", **dict(lines)}
        bus = NatsBus(ClusterSettings.from_env(env))
        until(lambda: bus.status().connected)
        bus.close()
        stranger = NatsBus(ClusterSettings(nats_url=env["CLUSTER_NATS_URL"]))
        until(lambda: "authorization violation" in stranger.status().reason.lower())
        stranger.close()
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("broken", ["account.seed", "operator.seed"])
def test_a_broken_key_is_a_sentence(tmp_path: Path, broken: str) -> None:
    (tmp_path / broken).write_text("x")
    with pytest.raises(CommandError, match="This is not the seed of an"):
        said("init", "--dir", str(tmp_path))


def test_a_place_where_nothing_can_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file"):
        said("init", "--dir", str(tmp_path / "file"))


@pytest.mark.django_db
def test_status_of_an_open_bus_says_so() -> None:
    words = said("status")
    assert "none: minting is off" in words
    assert "never" in words


@pytest.mark.django_db
def test_status_tells_public_parts_counts_and_the_last_push(
    managed: Server, queued: list[Any]
) -> None:
    real = make_node()
    credentials.mint(real, now=NOW)
    credentials.mint(make_node("gone"), now=NOW)
    credentials.revoke(real, by="ada", reason="", now=NOW)
    BusAccount.objects.create(told_at=NOW - timedelta(days=1), trouble="NATS is away.")
    words = said("status")
    assert managed.nats.keys
    assert managed.nats.keys.account.public in words
    assert managed.nats.keys.signing.public in words
    assert "1 credentials of nodes" in words
    assert "1 not yet expired, 1 of them unknown to NATS" in words
    assert "2029-12-31 12:00:00 UTC" in words
    assert "NATS is away." in words
    for seed in (managed.settings.nats_account_seed, managed.settings.nats_operator_seed):
        assert seed not in words


def test_an_open_bus_and_a_wrong_seed_are_told_by_the_checks(settings: Any) -> None:
    def ids(**env: str) -> set[str]:
        settings.CLUSTER = ClusterSettings.from_env(
            {f"CLUSTER_NATS_{name}": value for name, value in env.items()}
        )
        found = checks.run_checks(include_deployment_checks=True)
        return {str(each.id) for each in found if str(each.id).startswith("clustermgr.")}

    account, operator = Key.generate(Kind.ACCOUNT).seed, Key.generate(Kind.OPERATOR).seed
    assert ids() == {"clustermgr.I001"}
    assert ids(ACCOUNT_SEED=account) == {"clustermgr.I002"}
    whole = {"OPERATOR_SEED": operator, "SYSTEM_CREDENTIALS": "/x"}
    assert ids(ACCOUNT_SEED=account, **whole) == set()
    assert ids(ACCOUNT_SEED=operator, **whole) == {"clustermgr.E004"}
    settings_text = json.dumps(ids(ACCOUNT_SEED=operator), default=str)
    assert operator not in settings_text
