import time
from itertools import pairwise

import pytest

from tests.contract_worker.bus import Bus
from tests.contract_worker.conftest import TOKEN, Connect, Start
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.ours import NatsServer, until
from tests.contract_worker.target import Target

ALWAYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "address": str,
    "http_address": str,
    "total_vram": int,
    "available_vram": int,
    "total_ram": int,
    "available_ram": int,
    "total_disk": int,
    "available_disk": int,
    "max_replicas_per_model": int,
    "labels": dict,
}
BEATEN = {"available_vram", "total_vram", "available_ram", "available_disk", "total_disk"}


@pytest.fixture
def seen(target: Target) -> ControlPlane:
    """The manager that the worker under test registered with, if that is us."""
    if target.plane is None:
        pytest.skip("WORKER_CONTRACT_LISTEN is not set: it registered with somebody else")
    return target.plane


def test_a_registration_says_who_and_what_the_machine_is(
    seen: ControlPlane, target: Target
) -> None:
    [told] = seen.of("register")[:1]
    assert told.authorization == (f"Bearer {target.token}" if target.token else "")
    assert told.content_type.startswith("application/json")
    for key, kind in ALWAYS.items():
        assert isinstance(told.body[key], kind), (key, told.body)
    assert told.body.get("token", "") == target.token
    assert told.body.get("node_type", "backend") == "backend"
    assert told.body["labels"]["node.replica-slots"] == str(told.body["max_replicas_per_model"])
    assert told.body["max_replicas_per_model"] >= 1


def test_heartbeats_tell_what_is_free(seen: ControlPlane, target: Target) -> None:
    until(lambda: len(seen.of("heartbeat")) >= 3, seconds=90)
    for beat in seen.of("heartbeat"):
        assert beat.node_id == seen.node_id
        assert beat.authorization == (f"Bearer {target.token}" if target.token else "")
        assert {"available_ram", "total_disk", "available_disk"} <= set(beat.body)
        assert set(beat.body) <= BEATEN | {"gpu_vendor"}
        assert all(isinstance(beat.body[key], int) for key in set(beat.body) & BEATEN)


def test_what_it_was_configured_with_is_what_it_says(plane: ControlPlane, start: Start) -> None:
    worker = start(LOCALAI_VRAM_BUDGET="80%")
    until(lambda: bool(plane.of("register")))
    body = plane.of("register")[0].body
    assert body["name"] == worker.name
    assert body["token"] == TOKEN
    assert body["address"] == f"localhost:{worker.base + 1}"
    assert body["http_address"] == f"localhost:{worker.base}"
    assert body["max_replicas_per_model"] == 4
    assert body["vram_budget"] == "80%"
    assert body["labels"] == {"rack": "9", "node.replica-slots": "4"}


def test_heartbeats_come_in_their_rhythm(plane: ControlPlane, start: Start) -> None:
    start()
    until(lambda: len(plane.of("heartbeat")) >= 5)
    beats = plane.of("heartbeat")
    gaps = [later.at - earlier.at for earlier, later in pairwise(beats)]
    assert 0.5 < sum(gaps) / len(gaps) < 2.0  # it was told one second, give or take its jitter


def test_a_manager_that_is_away_at_first_is_asked_again(
    plane: ControlPlane, start: Start, nats: NatsServer, connect: Connect
) -> None:
    plane.refuse["register"] = 503
    start()
    until(lambda: len(plane.of("register")) >= 2)
    del plane.refuse["register"]
    until(connect(nats.url, plane.node_id).listens)


def test_a_pending_worker_that_needs_credentials_waits_and_hears_nothing(
    plane: ControlPlane, start: Start, nats: NatsServer, connect: Connect
) -> None:
    plane.status = "pending"
    worker = start(LOCALAI_NATS_REQUIRE_AUTH="true")
    until(lambda: len(plane.of("register")) >= 2)
    bus: Bus = connect(nats.url, plane.node_id)
    assert not bus.listens()
    assert plane.of("heartbeat") == []
    assert worker.alive()


def test_a_pending_worker_on_an_open_bus_beats_and_listens_at_once(
    plane: ControlPlane, start: Start, nats: NatsServer, connect: Connect
) -> None:
    plane.status = "pending"
    start()
    until(connect(nats.url, plane.node_id).listens)
    until(lambda: bool(plane.of("heartbeat")))


def test_a_manager_that_lost_the_node_is_told_again(
    plane: ControlPlane, start: Start, nats: NatsServer, connect: Connect
) -> None:
    start()
    until(lambda: bool(plane.of("heartbeat")))
    plane.refuse["heartbeat"] = 404
    plane.node_id = "0b6f0000-0000-4000-8000-000000000001"
    until(lambda: len(plane.of("register")) >= 2)
    del plane.refuse["heartbeat"]
    until(connect(nats.url, plane.node_id).listens)
    until(lambda: plane.of("heartbeat")[-1].node_id == plane.node_id)


def test_no_heartbeat_without_the_bus(plane: ControlPlane, start: Start, connect: Connect) -> None:
    server = NatsServer()
    server.start()
    worker = start(nats=server.url)
    until(lambda: len(plane.of("heartbeat")) >= 2)
    server.stop()
    # One may be on its way; then there is silence, and a manager can see that commands are lost
    until(lambda: time.monotonic() - plane.of("heartbeat")[-1].at > 4.0)
    assert worker.alive()
    server.start()
    count = len(plane.of("heartbeat"))
    until(lambda: len(plane.of("heartbeat")) > count)
    until(connect(server.url, plane.node_id).listens)
    server.stop()
