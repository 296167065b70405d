"""docs/acceptance.md and the names of the tests agree."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)
NAMED = re.compile(r"def test_row_(\d+)(?:_and_(\d+))?_")


def test_every_promise_has_a_test_that_names_it_and_no_test_names_another() -> None:
    promised = [int(row) for row in ROW.findall((ROOT / "docs/acceptance.md").read_text())]
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {int(row) for rows in NAMED.findall(tests) for row in rows if row}
    assert sorted(promised) == list(range(1, 86))
    assert named == set(promised)
