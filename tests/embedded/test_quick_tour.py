"""The README's quick tour, taken word for word by a newcomer's shell."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.embedded.running import ROOT, Up
from tests.services import until

pytestmark = pytest.mark.timeout(600)

DEMO_WORKERS = 2
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Each block of the tour, as it would be pasted."""
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("## Quick tour")[2].partition("\n## ")[0]
    return [textwrap.dedent(block) for _, block in BLOCK.findall(section)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory that has what a clone has after `make run`, and nothing of ours."""
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "worker").symlink_to(ROOT / "worker")
    (clone / ".venv").symlink_to(sys.prefix)
    return clone


def test_the_quick_tour_of_the_readme_works_as_written(checkout: Path) -> None:
    data = checkout / ".clustermgr"
    up = Up(data, CLUSTER_DEMO_WORKERS=str(DEMO_WORKERS)).start()
    try:
        token = up.run()["api_token"]
        until(lambda: len(json.loads(up.get("/api/nodes", token)[1])) == DEMO_WORKERS)
        blocks = commands()
        assert len(blocks) == 5
        script = "set -eu\n" + "\necho ----\n".join(blocks)
        told = subprocess.run(
            ["bash", "-c", script],
            cwd=checkout,
            env=up.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        _, defined, leased, spoken, released = told.stdout.split("----\n")
        figures = up.get("/metrics", token)[1]
    except Exception as problem:
        problem.add_note(up.log.read_text())
        raise
    finally:
        up.stop()
    assert json.loads(defined)["actual"] == 0
    lease = json.loads(leased)
    assert lease["model"] == "storyteller"
    assert lease["why"]
    story, embedding = spoken.splitlines()
    assert len(story) > len("story: ")
    assert embedding == "embedding: 256 numbers"
    assert json.loads(released) == {"released": True}
    # Of whichever process granted it
    assert 'clustermgr_leases_total{how="prefix-cold"} 1.0' in figures
    assert "clustermgr_route_seconds_count 1.0" in figures
