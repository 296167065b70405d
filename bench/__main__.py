"""`python -m bench sweep`: one benchmark on servers of its own; without a name, all of them."""

import argparse
import gc
import importlib
import subprocess
import sys
from pathlib import Path

from bench import harness

HERE = Path(__file__).parent
TOOLS = {"ears", "fleet", "gale", "harness", "running", "server"}
NAMES = sorted({path.stem for path in HERE.glob("[!_]*.py")} - TOOLS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=NAMES, nargs="?")
    name = parser.parse_args().name
    if name is None:
        _all()
        return
    with harness.cluster():
        # Only now: models cannot be imported before Django knows its database
        bench = importlib.import_module(f"bench.{name}")
        gc.freeze()  # as our processes do
        bench.run()


def _all() -> None:
    for name in NAMES:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", "bench", name], check=True)


if __name__ == "__main__":
    main()
