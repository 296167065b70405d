"""A simulated fleet against the real manager, commanded through the gateway."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NodeRefused, NodeSilent, NodeUnreachable
from nodes.gateway import NodeGateway
from nodes.models import BackendNode
from nodes.services import jointokens
from nodes.services.jointokens import Terms
from nodes.wire import InstallProgress
from tests.services import until

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class RunningFleet:
    state: Path
    process: subprocess.Popen[bytes]

    def ask(self, path: str, **order: Any) -> Any:
        where = json.loads(self.state.read_text())
        request = urllib.request.Request(
            f"{where['url']}/{path}",
            data=json.dumps(order).encode() if path != "nodes" else None,
            headers={"Authorization": f"Bearer {where['token']}"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.ask("nodes")}

    def all_listen(self) -> bool:
        return all(node["listening"] for node in self.ask("nodes"))


Starts = Callable[..., RunningFleet]


@pytest.fixture
def start(live_server: Any, tmp_path: Path) -> Iterator[Starts]:
    terms = Terms(auto_approve=True)
    _, secret = jointokens.issue("fleet", by="tests", now=datetime.now(UTC), terms=terms)
    started: list[subprocess.Popen[bytes]] = []

    def starts(nodes: int, *more: str) -> RunningFleet:
        state = tmp_path / "fleet.json"
        command = [sys.executable, "-m", "worker.fleet", "--nodes", str(nodes), *more]
        env = {
            **os.environ,
            "LOCALAI_REGISTER_TO": live_server.url,
            "LOCALAI_NATS_URL": settings.CLUSTER.nats_url,
            "LOCALAI_REGISTRATION_TOKEN": secret,
        }
        timing = ["--heartbeat-interval", "200ms", "--state-file", str(state)]
        process = subprocess.Popen([*command, *timing], cwd=ROOT, env=env)
        started.append(process)
        fleet = RunningFleet(state, process)
        until(lambda: state.exists() and len(fleet.states()) == nodes and fleet.all_listen())
        return fleet

    yield starts
    for process in started:
        process.terminate()
        process.wait(60)


@pytest.fixture
def gateway() -> Iterator[NodeGateway]:
    bus = NatsBus(settings.CLUSTER)
    moment = timedelta(milliseconds=500)
    yield NodeGateway(bus, cluster=replace(settings.CLUSTER, list_timeout=moment))
    bus.close()


def test_simulated_nodes_join_beat_and_obey_like_real_ones(
    start: Starts, gateway: NodeGateway
) -> None:
    start(5, "--link-speed", "400MB", "--backend-size", "200MB")
    nodes = list(BackendNode.objects.exclude(approved_at=None).order_by("name"))
    assert [node.name for node in nodes] == [f"sim-000{number}" for number in range(1, 6)]
    before = nodes[0].last_heartbeat
    until(lambda: BackendNode.objects.get(pk=nodes[0].pk).last_heartbeat > before)
    ticks: list[InstallProgress] = []
    installed = gateway.install(
        nodes[0].pk, backend="llama-cpp", model_id="m", op_id="op-1", on_progress=ticks.append
    )
    assert installed.address == "127.0.0.1:50051"
    assert [tick.phase for tick in ticks if tick.percentage == 0][:1] == ["resolving"]
    assert any(0 < tick.percentage < 100 for tick in ticks)
    assert [one.name for one in gateway.list_backends(nodes[0].pk)] == ["llama-cpp"]
    assert gateway.list_backends(nodes[1].pk) == ()


def test_a_download_is_given_up_through_the_gateway(start: Starts, gateway: NodeGateway) -> None:
    start(1, "--link-speed", "1MB")
    node = BackendNode.objects.get()

    def give_up(tick: InstallProgress) -> None:
        assert gateway.cancel(node.pk, op_id="op-1")

    with pytest.raises(NodeRefused, match=r"^cancelled$"):
        gateway.install(node.pk, backend="llama-cpp", op_id="op-1", on_progress=give_up)
    assert gateway.list_backends(node.pk) == ()


def test_nodes_fall_silent_crash_come_back_and_leave(start: Starts, gateway: NodeGateway) -> None:
    fleet = start(3)
    known = {node.name: node for node in BackendNode.objects.all()}
    fleet.ask("silence", names=["sim-0001"])
    fleet.ask("crash", names=["sim-0002"])
    with pytest.raises(NodeSilent):
        gateway.list_backends(known["sim-0001"].pk)
    with pytest.raises(NodeUnreachable):
        gateway.list_backends(known["sim-0002"].pk)
    assert fleet.states() == {
        "sim-0001": "silent",
        "sim-0002": "crashed",
        "sim-0003": "running",
    }
    fleet.ask("wake")
    until(fleet.all_listen)
    assert gateway.list_backends(known["sim-0001"].pk) == ()
    assert gateway.list_backends(known["sim-0002"].pk) == ()
    reborn = BackendNode.objects.get(name="sim-0002")
    assert reborn.pk == known["sim-0002"].pk
    assert reborn.boot_id != known["sim-0002"].boot_id
    assert fleet.ask("remove", names=["sim-0003"]) == {"names": ["sim-0003"]}
    assert BackendNode.objects.get(name="sim-0003").left_at is not None
    fleet.ask("remove")
    assert fleet.process.wait(60) == 0  # nobody is left to simulate


def test_chance_is_seeded(start: Starts) -> None:
    fleet = start(6, "--silent-rate", "0.5", "--seed", "7")
    until(lambda: list(fleet.states().values()).count("silent") == 3)
    assert fleet.ask("add", count=2) == {"names": ["sim-0007", "sim-0008"]}


def test_an_order_that_makes_no_sense_is_refused(start: Starts) -> None:
    fleet = start(1)
    for path, order in (
        ("crash", {"names": ["nobody"]}),
        ("add", {"count": 0}),
        ("add", {"count": "many"}),
        ("silence", {"names": "sim-0001"}),
    ):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            fleet.ask(path, **order)
        assert refusal.value.code == 400
    where = json.loads(fleet.state.read_text())
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{where['url']}/nodes", timeout=60)
    assert fleet.state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "many"], "must be a whole number"),
        (["--fail-rate", "2"], "must be between 0 and 1"),
        (["--link-speed", "fast"], "must be a size"),
        (["--nodes", "1"], "--register-to is required"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(arguments: list[str], sentence: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCALAI_")}
    done = subprocess.run(
        [sys.executable, "-m", "worker.fleet", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
