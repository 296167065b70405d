from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from clustermgr.lib.errors import NodeRefused, NodeSilent, NodeUnreachable, NotConnected
from nodes.outcomes import Installed
from nodes.wire import InstallProgress
from tests.contract_worker.ours import until
from tests.worker_faults.conftest import Stage


def in_the_middle(stage: Stage, act: Callable[[], object]) -> Future[Installed]:
    """Begin an install, and act while its download runs."""
    with ThreadPoolExecutor(1) as crowd:
        asked = crowd.submit(stage.install, "other", op_id="op-1")
        until(lambda: bool(stage.plane.served))
        act()
    return asked


def test_nobody_there_is_told_for_every_question_and_nothing_happens(stage: Stage) -> None:
    stage.worker.kill()
    gateway, node = stage.gateway, stage.node_id
    until(lambda: not stage.listens())
    for ask in (
        lambda: stage.install("other"),
        lambda: gateway.upgrade(node, backend="other"),
        lambda: gateway.delete(node, backend="other"),
        lambda: gateway.cancel(node, op_id="op-1"),
        lambda: gateway.list_backends(node),
        lambda: gateway.running_models(node),
        lambda: gateway.unload(node, model_name="llama", address="localhost:1"),
        lambda: gateway.delete_model(node, model_name="llama"),
        lambda: gateway.stop_model(
            node, model_name="llama", replica_index=0, address="localhost:1"
        ),
    ):
        with pytest.raises(NodeUnreachable):
            ask()


def test_no_answer_yet_is_no_failure_and_asking_again_finds_the_same_work(stage: Stage) -> None:
    stage.galleries.add_address("other", seconds=4.0)
    with pytest.raises(NodeSilent):
        stage.hasty(1.0).install("other", op_id="op-1")
    installed = stage.install("other", op_id="op-1")
    assert installed.address.startswith("localhost:")
    assert len(stage.plane.served) == 1
    assert stage.running() == {"llama#0"}


def test_a_refusal_has_the_workers_words(stage: Stage) -> None:
    stage.galleries.add_folder("other", manner="dies")
    with pytest.raises(NodeRefused, match="no such accelerator"):
        stage.install("other")
    assert stage.running() == set()


def test_a_bus_that_restarts_in_the_middle_of_an_install_costs_nothing(stage: Stage) -> None:
    stage.galleries.add_address("other", seconds=4.0)

    def restart() -> None:
        stage.nats.stop()
        stage.nats.start()

    assert in_the_middle(stage, restart).result().address.startswith("localhost:")
    assert len(stage.plane.served) == 1
    assert stage.running() == {"llama#0"}


def test_progress_goes_on_after_the_bus_restarted_and_never_backwards(stage: Stage) -> None:
    stage.galleries.add_address("other", seconds=6.0)
    ticks: list[InstallProgress] = []
    with ThreadPoolExecutor(1) as crowd:
        asked = crowd.submit(stage.install, "other", op_id="op-1", on_progress=ticks.append)
        until(lambda: any(tick.percentage > 0 for tick in ticks))
        stage.nats.stop()
        seen = len(ticks)
        stage.nats.start()
        asked.result()
    assert len(ticks) > seen + 1
    downloads = [tick.percentage for tick in ticks if tick.phase == "downloading"]
    assert downloads == sorted(downloads)


def test_a_bus_that_stays_away_is_silence_and_then_our_own_trouble(stage: Stage) -> None:
    stage.galleries.add_address("other", seconds=2.0)
    asked = in_the_middle(stage.hasty(5.0), stage.nats.stop)
    assert isinstance(asked.exception(), NodeSilent)
    with pytest.raises(NotConnected):
        stage.install("other")
    until(lambda: len(stage.worker.family()) > 0)  # it went on without us
    stage.nats.start()
    until(stage.listens)
    assert stage.running() == {"llama#0"}
    stage.install("other")
    assert len(stage.plane.served) == 1


def test_a_worker_killed_in_the_middle_is_silence_then_nobody_then_a_fresh_start(
    stage: Stage,
) -> None:
    stage.galleries.add_address("other", seconds=20.0)
    asked = in_the_middle(stage.hasty(5.0), stage.worker.kill)
    assert isinstance(asked.exception(), NodeSilent)
    with pytest.raises(NodeUnreachable):
        stage.install("other")
    stage.worker.start()
    until(stage.listens)
    assert stage.gateway.list_backends(stage.node_id) == ()
    stage.galleries.add_address("other")
    assert stage.install("other").address.startswith("localhost:")


def test_an_upgrade_interrupted_by_a_kill_leaves_the_old_version_whole(stage: Stage) -> None:
    stage.galleries.add_address("other", version="1.0.0")
    stage.install("other")
    stage.plane.served.clear()
    stage.galleries.add_address("other", version="2.0.0", seconds=20.0)
    stage_hasty = stage.hasty(4.0)
    with ThreadPoolExecutor(1) as crowd:
        asked = crowd.submit(
            stage_hasty.gateway.upgrade, stage.node_id, backend="other", galleries=stage.index()
        )
        until(lambda: bool(stage.plane.served))
        stage.worker.kill()
    assert isinstance(asked.exception(), NodeSilent)
    stage.worker.start()
    until(stage.listens)
    [kept] = stage.gateway.list_backends(stage.node_id)
    assert (kept.name, kept.version) == ("other", "1.0.0")
