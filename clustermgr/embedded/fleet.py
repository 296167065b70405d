"""`manage.py fleet`: simulated nodes for a running `make run`."""

import argparse
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustermgr.embedded.parts import ROOT
from clustermgr.embedded.scratch import until

WHICH = ("silence", "wake", "crash", "remove")
PATIENCE = 120  # seconds; adding a thousand nodes takes some


class Problem(Exception):
    """A sentence for the person who typed the command."""


@dataclass(frozen=True, slots=True)
class FleetProcess:
    """The process that the nodes live in; one for each data directory."""

    data_dir: Path

    @property
    def state(self) -> Path:
        return self.data_dir / "fleet.json"

    @property
    def log(self) -> Path:
        return self.data_dir / "fleet.log"

    def ask(self, path: str, order: dict[str, Any] | None = None) -> Any:
        """Send an order, or only look; Problem when there is no fleet or it says no."""
        try:
            where = json.loads(self.state.read_text())
            request = urllib.request.Request(
                f"{where['url']}/{path}",
                data=json.dumps(order).encode() if order is not None else None,
                headers={"Authorization": f"Bearer {where['token']}"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as refusal:
            raise Problem(json.load(refusal).get("error", str(refusal))) from refusal
        except (OSError, ValueError) as error:
            raise Problem("There are no simulated nodes; add some first.") from error

    def alive(self) -> bool:
        try:
            self.ask("nodes")
        except Problem:
            return False
        return True

    def ensure(self) -> None:
        """Start the process if there is none; it ends with the cluster manager it belongs to."""
        if self.alive():
            return
        facts = self._running()
        command = [sys.executable, "-m", "worker.fleet"]
        command += ["--state-file", str(self.state)]
        command += ["--as-long-as", str(self.data_dir / "run.json")]
        env = {
            **os.environ,
            "LOCALAI_REGISTER_TO": facts["url"],
            "LOCALAI_NATS_URL": facts["nats_url"],
            "LOCALAI_REGISTRATION_TOKEN": facts["registration_token"],
        }
        with self.log.open("ab") as log:
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until(self.alive)
        except AssertionError:
            raise Problem(f"The fleet did not start; see {self.log}.") from None

    def _running(self) -> dict[str, str]:
        path = self.data_dir / "run.json"
        try:
            facts: dict[str, str] = json.loads(path.read_text())
        except FileNotFoundError:
            raise Problem(
                f"No cluster manager runs on {self.data_dir}; `make run` first."
            ) from None
        return facts


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    data_dir = Path(os.environ.get("CLUSTER_DATA_DIR") or ".clustermgr").absolute()
    try:
        print(_obey(FleetProcess(data_dir), options))
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def _obey(fleet: FleetProcess, options: argparse.Namespace) -> str:
    if options.verb == "list":
        rows = [f"{node['name']}  {node['state']:8} {node['id']}" for node in fleet.ask("nodes")]
        return "\n".join(rows) or "No simulated nodes."
    if options.verb == "add":
        fleet.ensure()
        names = fleet.ask("add", {"count": options.count})["names"]
        return f"{len(names)} joined: {names[0]} to {names[-1]}"
    given = options.nodes
    by_number = len(given) == 1 and given[0].isdigit()
    order = {"count": int(given[0])} if by_number else {"names": given}
    names = fleet.ask(options.verb, order if given else {})["names"]
    return f"{options.verb}: {', '.join(names) or 'nobody'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="manage.py fleet", description="Simulated nodes for a running `make run`."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="who is there")
    add = verbs.add_parser("add", help="start some; they wait for approval like any other")
    add.add_argument("count", type=int, nargs="?", default=1)
    for verb in WHICH:
        one = verbs.add_parser(verb)
        one.add_argument("nodes", nargs="*", help="names, or how many by chance; none: all")
    return parser
