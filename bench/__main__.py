"""`python -m bench sweep`: one benchmark on servers of its own."""

import argparse
import importlib
from pathlib import Path

from bench import harness

HERE = Path(__file__).parent
TOOLS = {"ears", "fleet", "gale", "harness", "running", "server"}
NAMES = sorted({path.stem for path in HERE.glob("[!_]*.py")} - TOOLS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    name = parser.parse_args().name
    with harness.cluster():
        # Only now: models cannot be imported before Django knows its database
        importlib.import_module(f"bench.{name}").run()


if __name__ == "__main__":
    main()
