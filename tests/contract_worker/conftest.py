"""The suite plays the manager; docs/worker-contract.md tells how to point it at a worker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from nats.aio.client import Client

from tests.contract_worker.background import Background
from tests.contract_worker.bus import Bus
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.gallery import Galleries
from tests.contract_worker.ours import NatsServer, OurWorker, until
from tests.contract_worker.target import Target, told, told_galleries

TOKEN = "contract-token"
FOREIGN = bool(told("NATS_URL"))
Connect = Callable[[str, str], Bus]
Start = Callable[..., OurWorker]


@pytest.fixture(scope="package")
def background() -> Iterator[Background]:
    with Background() as running:
        yield running


@pytest.fixture(scope="package")
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="package")
def connect(background: Background) -> Iterator[Connect]:
    clients: list[Client] = []

    def dial(url: str, node_id: str) -> Bus:
        client = Client()
        clients.append(client)
        background.run(client.connect(url, allow_reconnect=True))
        return Bus(background, client, node_id)

    yield dial
    for client in clients:
        background.run(client.close())


@pytest.fixture(scope="package")
def target(
    background: Background, connect: Connect, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The worker under test; one for all, since starting one is not what most cases are about."""
    with ExitStack() as cleanup:
        if FOREIGN:
            yield _foreign(background, connect, cleanup)
        else:
            home = tmp_path_factory.mktemp("worker")
            yield _ours(background, connect, cleanup, home)


def _foreign(background: Background, connect: Connect, cleanup: ExitStack) -> Target:
    node_id, plane = told("NODE_ID"), None
    if listen := told("LISTEN"):
        plane = ControlPlane(token=told("TOKEN"))
        host, _, port = listen.rpartition(":")
        plane.start(background, host, int(port))
        cleanup.callback(plane.stop, background)
        until(lambda: bool(plane and plane.of("register")), seconds=300)
        node_id = plane.node_id
    assert node_id, "say which worker: WORKER_CONTRACT_NODE_ID or WORKER_CONTRACT_LISTEN"
    bus = connect(told("NATS_URL"), node_id)
    until(bus.listens, seconds=60)
    return Target(
        bus=bus,
        token=told("TOKEN"),
        http=told("HTTP"),
        backend=told("BACKEND"),
        galleries=told_galleries(),
        patience=float(told("PATIENCE", "900")),
        process=None,
        plane=plane,
    )


def _ours(background: Background, connect: Connect, cleanup: ExitStack, home: Path) -> Target:
    server = NatsServer()
    server.start()
    cleanup.callback(server.stop)
    plane = ControlPlane(token=TOKEN)
    plane.start(background)
    cleanup.callback(plane.stop, background)
    galleries = Galleries(home, plane)
    galleries.add_archive("stub")
    worker = OurWorker(home, url=plane.url, nats=server.url, token=TOKEN)
    worker.start()
    cleanup.callback(worker.kill)
    bus = connect(server.url, plane.node_id)
    cleanup.callback(bus.close)  # before its server goes: a client that redials is hard to close
    until(bus.listens)
    return Target(
        bus=bus,
        token=TOKEN,
        http=worker.http,
        backend="stub",
        galleries=galleries.text(),
        patience=100.0,
        process=worker,
        plane=plane,
    )


@pytest.fixture
def worker(target: Target) -> Iterator[Target]:
    """The worker under test, with nothing running before and after."""
    _stop_everything(target)
    yield target
    if target.process is not None:
        assert target.process.alive(), target.process.log.read_text()[-4000:]
    _stop_everything(target)


def _stop_everything(target: Target) -> None:
    target.bus.tell("backend.stop", b'{"backend": "", "force": true}')
    keys = {f"{model}#{replica}" for model, replica in target.bus.running()} | target.asked
    for key in keys:
        until(lambda key=key: not target.stop_exactly(key, "")["matched"], seconds=60)  # type: ignore[misc]
    target.asked.clear()
    assert target.bus.running() == {}


# --- Only for a worker that the suite may start, starve and kill -------------------------------


@pytest.fixture
def ours() -> None:
    if FOREIGN:
        pytest.skip("needs a worker that the suite starts itself, with galleries of its own")


@pytest.fixture
def plane(ours: None, background: Background) -> Iterator[ControlPlane]:
    """A manager of the test's own."""
    control = ControlPlane(token=TOKEN)
    control.start(background)
    yield control
    control.stop(background)


@pytest.fixture
def galleries(plane: ControlPlane, tmp_path: Path) -> Galleries:
    home = tmp_path / "galleries"
    home.mkdir()
    return Galleries(home, plane)


@pytest.fixture
def start(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> Iterator[Start]:
    """Start a worker of the test's own; the test may do anything to it."""
    started: list[OurWorker] = []

    def begin(**more: str) -> OurWorker:
        home = tmp_path / f"worker-{len(started)}"
        home.mkdir()
        url = more.pop("nats", nats.url)
        worker = OurWorker(home, url=plane.url, nats=url, token=TOKEN, **more)
        started.append(worker)
        worker.start()
        return worker

    yield begin
    for worker in started:
        worker.kill()


@pytest.fixture
def own(
    start: Start, plane: ControlPlane, nats: NatsServer, connect: Connect, galleries: Galleries
) -> Target:
    """A fresh worker, and galleries that the test fills."""
    process = start()
    bus = connect(nats.url, plane.node_id)
    until(bus.listens)
    galleries.add_archive("stub")
    return Target(
        bus=bus,
        token=TOKEN,
        http=process.http,
        backend="stub",
        galleries=galleries.text(),
        patience=100.0,
        process=process,
        plane=plane,
    )
