import json
from concurrent.futures import ThreadPoolExecutor

import psutil
from nats.errors import TimeoutError as NoAnswer

from tests.contract_worker.bus import Bus
from tests.contract_worker.conftest import Connect, Start
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.gallery import Galleries
from tests.contract_worker.ours import NatsServer, OurWorker, until
from tests.contract_worker.target import Target


def alive(processes: list[psutil.Process]) -> bool:
    """A zombie is not: it waits for its parent, which may be the test itself."""
    return any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def backends_of(own: Target) -> list[psutil.Process]:
    assert own.process is not None
    family = own.process.family()
    assert family
    return family


def test_a_worker_that_is_told_to_end_drains_leaves_and_takes_everything_along(
    own: Target, plane: ControlPlane
) -> None:
    for model in ("llama", "qwen"):
        own.installed(model)
    family = backends_of(own)
    assert own.process is not None
    assert own.process.terminate() == 0
    said = [one.verb for one in plane.heard if one.verb in ("drain", "models", "deregister")]
    assert (said[0], said[-1]) == ("drain", "deregister")
    assert "models" in said
    assert not alive(family)
    assert not own.bus.listens()


def test_it_waits_for_requests_that_are_under_way(own: Target, plane: ControlPlane) -> None:
    plane.in_flight = 2
    assert own.process is not None
    with ThreadPoolExecutor(1) as crowd:
        ending = crowd.submit(own.process.terminate)
        until(lambda: len(plane.of("models")) >= 3)
        assert plane.of("deregister") == []
        assert own.process.alive()
        plane.in_flight = 0
        assert ending.result() == 0
    assert plane.of("deregister")


def test_it_leaves_when_the_manager_says_so(own: Target, plane: ControlPlane) -> None:
    own.installed("llama")
    family = backends_of(own)
    own.bus.tell("stop", b"null")
    until(lambda: own.process is not None and not own.process.alive(), seconds=60)
    assert plane.of("deregister")
    assert not alive(family)


def test_it_leaves_although_the_manager_is_gone(own: Target, plane: ControlPlane) -> None:
    for verb in ("drain", "models", "deregister"):
        plane.refuse[verb] = 500
    assert own.process is not None
    assert own.process.terminate() == 0
    assert plane.of("deregister")  # tried, although the drain failed


def test_backends_die_with_a_worker_that_is_killed(own: Target) -> None:
    own.installed("llama")
    family = backends_of(own)
    assert own.process is not None
    own.process.kill()
    until(lambda: not alive(family))


def test_what_a_killed_worker_had_installed_is_found_again(
    own: Target, plane: ControlPlane, nats: NatsServer, connect: Connect
) -> None:
    own.installed("llama")
    process = own.process
    assert process is not None
    process.kill()
    process.start()
    bus: Bus = connect(nats.url, plane.node_id)
    until(bus.listens)
    assert own.bus.running() == {}
    assert "stub" in own.listed()
    assert own.healthy(own.installed("llama"))


def test_a_worker_killed_in_the_middle_of_an_install_leaves_nothing_half_done(
    own: Target, galleries: Galleries, plane: ControlPlane
) -> None:
    galleries.add_address("other", seconds=30.0)
    process = own.process
    assert process is not None
    with ThreadPoolExecutor(1) as crowd:
        asked = crowd.submit(
            own.bus.ask_raw,
            "backend.install",
            json.dumps(
                {"backend": "other", "model_id": "llama", "backend_galleries": own.galleries}
            ).encode(),
            within=8.0,
        )
        until(lambda: bool(plane.served))
        process.kill()
        assert isinstance(asked.exception(), NoAnswer)  # delivered, hence not "nobody there"
    process.start()
    until(own.bus.listens)
    assert "other" not in own.listed()
    galleries.add_address("other")
    assert own.healthy(own.installed("llama", backend="other"))


def test_an_install_outlives_the_bus_and_is_found_by_asking_again(
    plane: ControlPlane, start: Start, connect: Connect, galleries: Galleries
) -> None:
    server = NatsServer()
    server.start()
    process: OurWorker = start(nats=server.url)
    bus = connect(server.url, plane.node_id)
    until(bus.listens)
    galleries.add_address("other", seconds=4.0)
    request = {"backend": "other", "model_id": "llama", "backend_galleries": galleries.text()}
    bus.tell("backend.install", json.dumps({**request, "op_id": "op-1"}).encode())
    until(lambda: bool(plane.served))
    server.stop()
    server.start()
    until(lambda: len(process.family()) > 0, seconds=60)
    again = connect(server.url, plane.node_id)
    until(again.listens)
    reply = again.ask("backend.install", request)
    assert reply["success"] is True
    assert len(plane.served) == 1
    server.stop()
