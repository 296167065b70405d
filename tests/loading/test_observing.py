import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psutil
import pytest

from nodes import backendrpc
from nodes.backendrpc import Health
from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import bearers
from nodes.states import Liveness, ReplicaState
from nodes.wire import Gallery
from scheduling.models import LoadJob, ModelLoadInfo, StrayProcess
from scheduling.services import observing, strays
from tests.contract_worker.ours import until
from tests.factories import make_node, make_replica
from tests.loading.conftest import Stage


def look(stage: Stage, **later: float) -> None:
    if later:
        stage.clock.passes(**later)
    observing.observe(gateway=stage.gateway, clock=stage.clock)


def kill_backends(stage: Stage) -> None:
    family = stage.real.worker.family()
    for child in family:
        child.kill()
    psutil.wait_procs(family, timeout=60)
    until(lambda: stage.running() == set())


@contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    """The worker says nothing; its backends go on."""
    worker = psutil.Process(stage.real.worker.pid)
    worker.suspend()
    try:
        yield
    finally:
        worker.resume()
        until(stage.real.listens)


def test_what_the_worker_lists_is_confirmed(stage: Stage) -> None:
    replica = stage.loaded()
    NodeModel.objects.update(misses=1, suspect_since=stage.clock())
    look(stage, minutes=3)
    replica.refresh_from_db()
    assert replica.last_confirmed_at is not None
    assert stage.clock() - replica.last_confirmed_at < timedelta(minutes=1)
    assert (replica.misses, replica.suspect_since) == (0, None)


def test_a_fresh_confirmation_is_not_written_again(stage: Stage) -> None:
    replica = stage.loaded()
    before = replica.last_confirmed_at
    look(stage, seconds=30)
    replica.refresh_from_db()
    assert replica.last_confirmed_at == before


@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_killed_backend_whose_port_refuses_is_forgotten_at_the_first_look(
    stage: Stage, in_flight: int
) -> None:
    stage.loaded()
    NodeModel.objects.update(in_flight=in_flight)
    kill_backends(stage)
    stage.queued.clear()
    look(stage, seconds=10)
    assert not NodeModel.objects.exists()
    assert stage.rung("scheduling.reconcile") == [[]]


def test_a_look_at_one_node_asks_no_other(stage: Stage) -> None:
    stage.loaded()
    kill_backends(stage)
    now = stage.clock()
    elsewhere = make_replica(
        make_node("elsewhere"), address="127.0.0.1:1", suspect_since=now, updated_at=now
    )
    stage.clock.passes(seconds=10)
    observing.observe(gateway=stage.gateway, clock=stage.clock, only=stage.node.pk)
    assert list(NodeModel.objects.all()) == [elsewhere]
    assert NodeModel.objects.get().misses == 0


def test_one_that_is_not_listed_but_whose_port_is_taken_is_missed_twice(stage: Stage) -> None:
    replica = stage.loaded()
    kill_backends(stage)
    with somebody_listening():
        look(stage, seconds=10)
        replica.refresh_from_db()
        assert replica.misses == 1
        look(stage)  # another process looks at the same time
        replica.refresh_from_db()
        assert replica.misses == 1
        look(stage, seconds=10)
        assert not NodeModel.objects.exists()


def test_one_with_requests_gets_no_more_and_is_forgotten_when_they_are_over(stage: Stage) -> None:
    stage.loaded()
    NodeModel.objects.update(in_flight=1)
    kill_backends(stage)
    with somebody_listening():
        look(stage, seconds=10)
        assert NodeModel.objects.serving().exists()
        for _ in range(4):
            look(stage, seconds=10)
            assert not NodeModel.objects.serving().exists()
        NodeModel.objects.update(in_flight=0)
        look(stage, seconds=10)
        assert not NodeModel.objects.exists()


@contextmanager
def somebody_listening() -> Iterator[None]:
    """Where the replica was, a stranger takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        NodeModel.objects.update(address=f"127.0.0.1:{stranger.getsockname()[1]}")
        yield


def test_one_that_is_being_unloaded_or_loaded_is_none_of_this(stage: Stage) -> None:
    for index, state in enumerate(set(ReplicaState) - {ReplicaState.LOADED}):
        make_replica(stage.node, index=index, state=state, address="localhost:1")
    for _ in range(4):
        look(stage, seconds=30)
    assert NodeModel.objects.count() == 3


def test_without_an_answer_a_living_backend_is_kept(stage: Stage) -> None:
    replica = stage.loaded()
    with frozen(stage):
        for _ in range(4):
            look_hastily(stage, minutes=3)
    replica.refresh_from_db()
    assert replica.misses == 0
    assert NodeModel.objects.exists()


def test_without_an_answer_a_busy_backend_is_alive(stage: Stage) -> None:
    stage.loaded("llama", "serial:true", "predict_seconds:60")
    token = bearers.of(stage.node)
    replica = NodeModel.objects.get()
    assert backendrpc.health(replica.address, token=token) == Health.ALIVE
    for child in stage.real.worker.family():
        child.suspend()  # takes connections, as the kernel does for it, and answers nothing
    try:
        assert backendrpc.health(replica.address, token=token) == Health.BUSY
        with frozen(stage):
            for _ in range(4):
                look_hastily(stage, minutes=3)
    finally:
        for child in stage.real.worker.family():
            child.resume()
    assert NodeModel.objects.get().misses == 0


def test_without_an_answer_one_that_is_gone_is_missed_three_times(stage: Stage) -> None:
    stage.loaded()
    with frozen(stage):
        family = stage.real.worker.family()
        for child in family:
            child.kill()
        for miss in (1, 2):
            look_hastily(stage, minutes=3)
            assert NodeModel.objects.get().misses == miss
        look_hastily(stage, minutes=3)
        assert not NodeModel.objects.exists()


def test_nobody_listening_is_unknown_and_not_empty(stage: Stage) -> None:
    replica = stage.loaded()
    away = BackendNode.objects.create(
        name="away",
        address="away:1",
        approved_at=stage.clock(),
        approved_by="tests",
        last_heartbeat=stage.clock(),
        liveness_changed_at=stage.clock(),
        created_at=stage.clock(),
        updated_at=stage.clock(),
    )
    NodeModel.objects.update(node=away)
    for _ in range(4):
        look(stage, minutes=3)
    away.refresh_from_db()
    assert away.liveness == Liveness.HEALTHY  # its own commands will tell
    assert NodeModel.objects.get() == replica  # its port still answers


def look_hastily(stage: Stage, **later: float) -> None:
    stage.clock.passes(**later)
    observing.observe(gateway=stage.hasty, clock=stage.clock)


def test_a_stray_process_is_stopped_after_a_grace(stage: Stage) -> None:
    galleries = [Gallery(name="builtin", url=stage.real.gallery.url)]
    stage.gateway.install(stage.node.pk, backend="reference", galleries=galleries)
    kept = stage.loaded("llama")
    look(stage)
    stray = StrayProcess.objects.get()
    assert (stray.model_name, stray.replica_index) == ("reference", 0)
    look(stage, minutes=1)
    assert stage.rung("scheduling.settle_stray") == []
    look(stage, minutes=2)
    assert stage.rung("scheduling.settle_stray") == [[stray.pk]]
    strays.settle(stray.pk, gateway=stage.gateway, clock=stage.clock)
    assert stage.running() == {"llama#0"}
    assert NodeModel.objects.get() == kept
    assert not StrayProcess.objects.exists()
    assert ClusterEvent.objects.get(kind="process.stopped").subject == "reference#0"


def test_a_stray_that_goes_by_itself_is_forgotten(stage: Stage) -> None:
    galleries = [Gallery(name="builtin", url=stage.real.gallery.url)]
    stage.gateway.install(stage.node.pk, backend="reference", galleries=galleries)
    look(stage)
    kill_backends(stage)
    look(stage)
    assert not StrayProcess.objects.exists()


def settle_stray(stage: Stage) -> None:
    look(stage)
    stray = StrayProcess.objects.get()
    stage.clock.passes(minutes=3)
    strays.settle(stray.pk, gateway=stage.gateway, clock=stage.clock)


def test_a_replica_that_was_forgotten_too_early_is_taken_in_again(stage: Stage) -> None:
    lost = stage.loaded()
    NodeModel.objects.all().delete()
    settle_stray(stage)
    found = NodeModel.objects.serving().get()
    same = ("address", "backend_type", "config_revision", "effective_options_hash")
    assert [getattr(found, name) for name in same] == [getattr(lost, name) for name in same]
    assert stage.running() == {"llama#0"}
    assert ClusterEvent.objects.get(kind="replica.adopted").subject == "llama#0"


@pytest.mark.parametrize("reason", ["edited", "nothing loaded", "draining"])
def test_what_is_not_certainly_ours_is_stopped_instead(stage: Stage, reason: str) -> None:
    stage.loaded()
    NodeModel.objects.all().delete()
    if reason == "edited":
        ModelLoadInfo.objects.update(config_revision="r2")
    elif reason == "draining":
        BackendNode.objects.update(drain_requested_at=stage.clock(), drain_requested_by="ada")
    else:
        [process] = stage.gateway.running_models(stage.node.pk)
        stage.gateway.unload(stage.node.pk, model_name="llama", address=process.address)
    settle_stray(stage)
    assert stage.running() == set()
    assert not NodeModel.objects.exists()


def test_a_model_that_is_edited_while_its_stray_is_asked_does_not_get_the_old_one(
    stage: Stage,
) -> None:
    stage.loaded()
    NodeModel.objects.all().delete()
    look(stage)
    stray = StrayProcess.objects.get()
    job = strays._loaded_by(stray)
    assert job is not None
    ModelLoadInfo.objects.update(config_revision="r2")
    assert not strays._insert(stray, job, now=stage.clock())
    assert not NodeModel.objects.exists()


def test_a_process_at_another_address_than_our_load_had_is_stopped(stage: Stage) -> None:
    other = stage.loaded("other")  # lives, and has a model
    lost = stage.loaded()
    NodeModel.objects.filter(pk=lost.pk).delete()
    LoadJob.objects.filter(model_name="llama").update(address=other.address)
    settle_stray(stage)
    assert stage.running() == {"other#0"}
    assert NodeModel.objects.get() == other


def test_a_stray_whose_slot_was_taken_meanwhile_is_left_to_its_owner(stage: Stage) -> None:
    stage.loaded()
    NodeModel.objects.all().delete()
    look(stage)
    stray = StrayProcess.objects.get()
    stage.clock.passes(minutes=3)
    make_replica(stage.node, state=ReplicaState.STAGING, address="")
    strays.settle(stray.pk, gateway=stage.gateway, clock=stage.clock)
    assert stage.running() == {"llama#0"}
