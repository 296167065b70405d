import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.running import ROOT, Up
from tests.services import until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    manager = Up(tmp_path / "data").start()
    yield manager
    if manager.process.poll() is None:
        manager.stop()


def fleet(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """As an operator types it: nothing of the manager's own environment is known here."""
    command = [sys.executable, "manage.py", "fleet", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_node_is_let_into_the_bus_once_it_is_approved(up: Up) -> None:
    fleet(up.env, "add", "2")
    state = json.loads((up.data_dir / "fleet.json").read_text())
    waiting, other = ask(f"{state['url']}/nodes", state["token"])
    assert not waiting["listening"]
    facts = up.run()
    approve = f"{facts['url']}/api/nodes/{waiting['id']}/approve"
    assert ask(approve, facts["api_token"], b"")["message"] == "node approved"
    until(lambda: ask(f"{state['url']}/nodes", state["token"])[0]["listening"], seconds=90)
    assert not ask(f"{state['url']}/nodes", state["token"])[1]["listening"], other


def ask(url: str, token: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def test_a_demo_fleet_comes_goes_and_ends_with_its_manager(up: Up) -> None:
    assert "joined: sim-0001 to sim-0003" in fleet(up.env, "add", "3").stdout
    assert fleet(up.env, "silence", "sim-0002").stdout == "silence: sim-0002\n"
    assert fleet(up.env, "crash", "1").stdout.startswith("crash: sim-000")
    listed = fleet(up.env, "list").stdout
    assert "sim-0002  silent" in listed
    assert fleet(up.env, "wake").returncode == 0
    assert fleet(up.env, "remove", "sim-0001").stdout == "remove: sim-0001\n"
    assert fleet(up.env, "crash", "nobody").stderr == "There is no simulated node nobody.\n"
    up.stop()
    until(lambda: not (up.data_dir / "fleet.json").exists())


def test_without_a_manager_there_is_no_fleet(tmp_path: Path) -> None:
    env = {"CLUSTER_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    adding = fleet(env, "add")
    assert adding.returncode == 1
    assert "`make run` first" in adding.stderr
    assert "add some first" in fleet(env, "list").stderr
