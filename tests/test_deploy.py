import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from clustermgr.conf import ClusterSettings

ROOT = Path(__file__).resolve().parent.parent
# Read by the supervisor and by `prepare`, which are not Django settings
SUPERVISOR = """
    HTTP_HOST HTTP_PORT NATS_HOST NATS_PORT NATS_SERVER_CERT NATS_SERVER_KEY NATS_SERVER_CA
    DATA_DIR POSTGRES_USER DEMO_WORKERS
    ADMIN_USER ADMIN_PASSWORD API_TOKEN
"""
UNITS = sorted((ROOT / "deploy").glob("*.service"))


def commands() -> list[tuple[str, list[str]]]:
    """Every command line that the files in deploy/ would run, from `python` on."""
    found = []
    for unit in UNITS:
        start = re.search(r"^ExecStart=\S*/(python .*)$", unit.read_text(), re.MULTILINE)
        assert start, unit
        found.append((unit.name, start.group(1).split()))
    for line in (ROOT / "deploy" / "Procfile").read_text().splitlines():
        name, _, command = line.partition(": ")
        found.append((f"Procfile {name}", command.split()))
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda value: str(value)[:30])
def test_each_command_exists_and_knows_its_options(name: str, command: list[str]) -> None:
    asked = [sys.executable, *command[1:], "--help"]
    result = subprocess.run(asked, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for option in (part for part in command if part.startswith("--")):
        assert option.split("=")[0] in result.stdout or option in ("--app", "--quiet")


def test_the_target_wants_only_units_that_are_there() -> None:
    wanted = re.findall(r"clustermgr-\w+\.service", (ROOT / "deploy/clustermgr.target").read_text())
    assert {f"{name}" for name in wanted} <= {unit.name for unit in UNITS}


def test_the_example_environment_names_every_knob_and_no_other() -> None:
    text = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#?\s?(CLUSTER_\w+)=", text, re.MULTILINE))
    knobs = {f"CLUSTER_{knob.name.upper()}" for knob in fields(ClusterSettings)}
    supervisor = {f"CLUSTER_{name}" for name in SUPERVISOR.split()}
    assert knobs <= named
    assert named <= knobs | supervisor


def test_the_example_environment_tells_the_defaults() -> None:
    text = (ROOT / ".env.example").read_text()
    told = dict(re.findall(r"^#\s?(CLUSTER_\w+)=(\d+(?:\.\d+)?)$", text, re.MULTILINE))
    ours = {f"CLUSTER_{knob.name.upper()}" for knob in fields(ClusterSettings)}
    numbers = {name: value for name, value in told.items() if name in ours}
    assert len(numbers) > 20
    assert ClusterSettings.from_env(numbers) == ClusterSettings()
