"""Workers that do not answer, or answer nonsense; played, because ours does neither."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import grpc
import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.states import Liveness, ReplicaState
from nodes.wire import InstallReply, subjects
from scheduling.models import LoadJob, ModelLoadInfo, StrayProcess
from scheduling.services import jobs, loading, observing, reaping, unloading
from scheduling.services.desk import Desk
from scheduling.services.loading import Hands
from scheduling.states import JobState
from tests.backendops.conftest import Clock
from tests.factories import NOW, make_node, make_replica
from tests.loading.silence import bus, clock, hands, hasty, job, node, worker
from tests.scripted import ScriptedWorker
from tests.services import until
from worker.rpc import backend_pb2 as pb

__all__ = ["bus", "clock", "hands", "hasty", "job", "node", "worker"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)

LISTED = b'{"models":[{"model_id":"llama","replica_index":0,"address":"127.0.0.1:50052"}]}'
NOTHING_RUNS = b'{"models":[]}'


@pytest.fixture(autouse=True)
def _doorbells(queued: list[tuple[Any, ...]]) -> None:
    """No test here has a broker behind it."""


def stops(*, terminated: bool = True) -> bytes:
    return b'{"matched":true,"freed":true,"terminated":%s}' % str(terminated).lower().encode()


def test_no_answer_to_an_install_is_no_failure_and_is_asked_again(
    job: LoadJob, worker: ScriptedWorker, hasty: Hands, clock: Clock
) -> None:
    worker.listens(subjects.INSTALL)
    assert loading.run(job.pk, hands=hasty)
    job.refresh_from_db()
    assert (job.state, job.due_at) == (JobState.PENDING, NOW + timedelta(seconds=5))
    assert NodeModel.objects.get().state == ReplicaState.STAGING
    assert not loading.run(job.pk, hands=hasty)
    clock.passes(seconds=5)
    assert loading.run(job.pk, hands=hasty)
    until(lambda: [path for path, _ in worker.heard] == [subjects.INSTALL.path] * 2)


def test_who_does_not_say_what_runs_is_asked_again_before_anything_is_loaded(
    job: LoadJob, worker: ScriptedWorker, hasty: Hands
) -> None:
    worker.listens(subjects.RUNNING_MODELS)
    assert loading.run(job.pk, hands=hasty)
    assert LoadJob.objects.get(state=JobState.PENDING).due_at == NOW + timedelta(seconds=5)
    assert [path for path, _ in worker.heard] == [subjects.RUNNING_MODELS.path]


def test_a_slot_that_is_not_quite_empty_yet_is_waited_for_and_nobody_is_blamed(
    job: LoadJob, worker: ScriptedWorker, hands: Hands
) -> None:
    worker.answers(subjects.INSTALL, b'{"success":false,"error":"llama#0 is stopping"}')
    assert loading.run(job.pk, hands=hands)
    assert LoadJob.objects.get(state=JobState.PENDING).due_at == NOW + timedelta(seconds=5)
    assert ModelLoadInfo.objects.get().failures == 0


def test_an_install_that_is_never_answered_ends_in_time(
    job: LoadJob, worker: ScriptedWorker, hasty: Hands, clock: Clock
) -> None:
    worker.listens(subjects.INSTALL)
    loading.run(job.pk, hands=hasty)
    clock.passes(minutes=30)
    loading.run(job.pk, hands=hasty)
    job.refresh_from_db()
    assert job.state == JobState.FAILED
    assert job.last_error.startswith("Not done in time.")
    # The worker may start a process yet: the slot is not free before it says that there is none
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING


@pytest.mark.parametrize("address", ["nowhere", "host:0", "host:99999", "host:"])
def test_a_worker_that_lies_about_its_address_is_told_in_a_sentence(
    job: LoadJob, worker: ScriptedWorker, hands: Hands, address: str
) -> None:
    worker.answers(subjects.INSTALL, InstallReply(success=True, address=address).encode())
    loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert job.state == JobState.FAILED
    assert "must end in its port" in job.last_error
    # Somewhere it runs: the order to stop it stands
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING


def test_an_address_where_nobody_is_fails_the_load(
    job: LoadJob, worker: ScriptedWorker, hands: Hands
) -> None:
    worker.answers(subjects.INSTALL, InstallReply(success=True, address="127.0.0.1:9").encode())
    worker.answers(subjects.STOP_MODEL, stops())
    loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert (job.state, job.address) == (JobState.FAILED, "127.0.0.1:9")
    assert "cannot be reached" in job.last_error
    assert not NodeModel.objects.exists()


def test_another_nodes_process_is_not_loaded_into(
    job: LoadJob, worker: ScriptedWorker, hands: Hands
) -> None:
    with _backend(pb.Result(success=True)) as (address, asked):
        victim = make_replica(make_node("victim"), "gamma", address=address)
        worker.answers(subjects.INSTALL, InstallReply(success=True, address=address).encode())
        loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert (job.state, asked) == (JobState.FAILED, [])
    assert job.last_error.endswith(f"its process is at {address}, where gamma#0 on victim is.")
    assert NodeModel.objects.get(state=ReplicaState.LOADED) == victim
    assert NodeModel.objects.get(node=job.node).state == ReplicaState.UNLOADING


def test_an_address_that_an_offline_node_had_is_free_again(
    job: LoadJob, worker: ScriptedWorker, hands: Hands
) -> None:
    with _backend(pb.Result(success=True)) as (address, asked):
        make_replica(make_node("lost", liveness=Liveness.OFFLINE), "gamma", address=address)
        worker.answers(subjects.INSTALL, InstallReply(success=True, address=address).encode())
        loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert (job.state, len(asked)) == (JobState.LOADED, 1)


@pytest.mark.parametrize("said", ["out of \x00 memory", "\x00"])
def test_a_refusal_that_no_row_could_hold_still_ends_the_load(
    job: LoadJob, worker: ScriptedWorker, hands: Hands, said: str
) -> None:
    with _backend(pb.Result(success=False, message=said)) as (address, _):
        worker.answers(subjects.INSTALL, InstallReply(success=True, address=address).encode())
        worker.answers(subjects.STOP_MODEL, stops())
        loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    words = "out of   memory" if "memory" in said else "The backend gave no reason."
    assert (job.state, job.last_error) == (JobState.FAILED, words)
    assert ModelLoadInfo.objects.get().failures == 1


def test_all_that_a_backend_printed_is_the_jobs_and_a_sentence_of_it_the_models(
    job: LoadJob, worker: ScriptedWorker, hands: Hands
) -> None:
    printed = "\n".join(["Traceback:", *(f"  frame {number}" for number in range(500)), "no room"])
    with _backend(pb.Result(success=False, message=printed)) as (address, _):
        worker.answers(subjects.INSTALL, InstallReply(success=True, address=address).encode())
        worker.answers(subjects.STOP_MODEL, stops())
        loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert len(job.last_error) == 4000
    assert ModelLoadInfo.objects.get().last_error == "gpu-1: Traceback: no room"


@contextmanager
def _backend(answer: pb.Result) -> Iterator[tuple[str, list[str]]]:
    """Somebody who listens, gives one answer to every load, and notes what it was asked for."""
    asked: list[str] = []

    def load(request: pb.ModelOptions, _: object) -> pb.Result:
        asked.append(request.Model)
        return answer

    handler = grpc.unary_unary_rpc_method_handler(
        load, pb.ModelOptions.FromString, pb.Result.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(2))
    methods = grpc.method_handlers_generic_handler("backend.Backend", {"LoadModel": handler})
    server.add_generic_rpc_handlers((methods,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", asked
    server.stop(None).wait()


def test_who_was_only_just_let_in_need_not_listen_yet(
    job: LoadJob, node: BackendNode, hands: Hands
) -> None:
    BackendNode.objects.update(approved_at=NOW - timedelta(seconds=10))
    loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    node.refresh_from_db()
    assert (job.state, node.liveness) == (JobState.PENDING, Liveness.HEALTHY)


def test_a_bus_that_is_away_says_nothing_about_anybody(
    job: LoadJob, node: BackendNode, clock: Clock
) -> None:
    bus = NatsBus(replace(django_settings.CLUSTER, nats_url="nats://127.0.0.1:9"))
    hands = Hands(gateway=NodeGateway(bus), desk=Desk(clock=clock), clock=clock)
    loading.run(job.pk, hands=hands)
    bus.close()
    job.refresh_from_db()
    node.refresh_from_db()
    assert (job.state, node.liveness) == (JobState.PENDING, Liveness.HEALTHY)


def test_a_load_is_not_begun_again_before_the_old_process_has_ended(
    job: LoadJob, worker: ScriptedWorker, hands: Hands, clock: Clock
) -> None:
    NodeModel.objects.update(state=ReplicaState.LOADING, address="h:50052")
    worker.answers(subjects.INSTALL, InstallReply(success=True, address="h:50052").encode())
    worker.answers(subjects.STOP_MODEL, stops(terminated=False))
    loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert job.state == JobState.PENDING
    assert [path for path, _ in worker.heard] == [subjects.STOP_MODEL.path]


def test_a_takeover_that_finds_nobody_leaves_the_order_to_stop_what_may_run(
    job: LoadJob, node: BackendNode, hands: Hands, clock: Clock
) -> None:
    assert jobs.claim(job.pk, by="dead", now=clock())
    clock.passes(minutes=1)
    reaping.reap(now=clock())
    assert loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    node.refresh_from_db()
    assert (job.state, node.liveness) == (JobState.FAILED, Liveness.UNHEALTHY)
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING


def test_a_first_claim_that_finds_nobody_gives_the_slot_back(job: LoadJob, hands: Hands) -> None:
    assert loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert (job.state, NodeModel.objects.exists()) == (JobState.FAILED, False)


@pytest.fixture
def old(worker: ScriptedWorker) -> ScriptedWorker:
    """From before `model.stop`: it can only be told to stop a key, and confirms nothing."""
    worker.answers(subjects.LIST_BACKENDS, b'{"backends":null}')
    worker.listens(subjects.STOP_BACKEND)
    return worker


def told_to_stop(old: ScriptedWorker) -> bool:
    told = [json.loads(said) for path, said in old.heard if path == subjects.STOP_BACKEND.path]
    return bool(told) and all(one["backend"] == "llama#0" for one in told)


def test_a_worker_without_exact_stops_is_healthy_and_its_slot_taken_until_the_process_is_gone(
    node: BackendNode, old: ScriptedWorker, hands: Hands, clock: Clock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as process:
        address = f"127.0.0.1:{process.getsockname()[1]}"
        row = make_replica(node, state=ReplicaState.UNLOADING, address=address)
        assert not unloading.stop(row.pk, gateway=hands.gateway, clock=clock)
        until(lambda: told_to_stop(old))
        row.refresh_from_db()
        assert (row.cleanup_attempts, row.cleanup_error) == (1, unloading.BY_KEY)
    clock.passes(minutes=1)
    assert unloading.stop(row.pk, gateway=hands.gateway, clock=clock)
    node.refresh_from_db()
    assert node.liveness == Liveness.HEALTHY
    assert not NodeModel.objects.exists()


@pytest.mark.parametrize("lists", [False, True])
def test_a_process_that_never_had_an_address_does_not_hold_an_old_workers_slot_for_ever(
    node: BackendNode, old: ScriptedWorker, hands: Hands, clock: Clock, lists: bool
) -> None:
    row = make_replica(node, state=ReplicaState.UNLOADING, address="")
    if lists:
        before = iter([LISTED, LISTED])
        old.answers(subjects.RUNNING_MODELS, lambda _: next(before, NOTHING_RUNS))
        assert not unloading.stop(row.pk, gateway=hands.gateway, clock=clock)
        clock.passes(minutes=1)
    assert unloading.stop(row.pk, gateway=hands.gateway, clock=clock)
    until(lambda: told_to_stop(old))
    assert BackendNode.objects.get().liveness == Liveness.HEALTHY


def test_a_load_waits_for_an_older_process_that_its_worker_cannot_stop_exactly(
    job: LoadJob, old: ScriptedWorker, hands: Hands
) -> None:
    old.answers(subjects.RUNNING_MODELS, LISTED)
    old.answers(subjects.INSTALL, InstallReply(success=True, address="127.0.0.1:50052").encode())
    assert loading.run(job.pk, hands=hands)
    job.refresh_from_db()
    assert (job.state, ModelLoadInfo.objects.get().failures) == (JobState.FAILED, 0)
    assert "does not know how to stop just it" in job.last_error
    assert subjects.INSTALL.path not in [path for path, _ in old.heard]
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING
    assert BackendNode.objects.get().liveness == Liveness.HEALTHY


def test_a_quiet_fleet_is_looked_at_with_the_same_few_statements(
    hands: Hands,
    clock: Clock,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with ExitStack() as crowd:
        for number in range(5):
            replica = make_replica(make_node(f"other-{number}"))
            played = crowd.enter_context(ScriptedWorker(node_id=replica.node_id))
            played.answers(subjects.RUNNING_MODELS, LISTED)
        with django_assert_num_queries(3):
            observing.observe(gateway=hands.gateway, clock=clock)


def test_what_a_fleet_has_to_tell_costs_the_same_however_many_tell(
    hands: Hands, clock: Clock
) -> None:
    assert _cost_of_news(2, hands, clock) == _cost_of_news(6, hands, clock)
    assert NodeModel.objects.filter(last_confirmed_at__gt=NOW).count() == 2 + 6
    assert NodeModel.objects.filter(misses=1).count() == 2 + 6
    assert StrayProcess.objects.count() == 2 + 6


def _cost_of_news(count: int, hands: Hands, clock: Clock) -> int:
    """One that lives, one that is missed and one that belongs to nobody, on each of some nodes."""
    clock.passes(minutes=3)
    told = [
        {"model_id": name, "replica_index": 0, "address": f"127.0.0.1:{port}"}
        for name, port in (("llama", 50052), ("stray", 50053))
    ]
    with ExitStack() as crowd:
        for number in range(count):
            node = make_node(f"of-{count}-{number}")
            make_replica(node)
            make_replica(node, "missed", address="")
            played = crowd.enter_context(ScriptedWorker(node_id=node.pk))
            played.answers(subjects.RUNNING_MODELS, json.dumps({"models": told}).encode())
        with CaptureQueriesContext(connection) as seen:
            observing.observe(gateway=hands.gateway, clock=clock)
    BackendNode.objects.update(liveness=Liveness.OFFLINE)  # nobody asks them again
    return len(seen)


def test_a_process_with_an_impossible_name_is_passed_over(
    worker: ScriptedWorker, hands: Hands, clock: Clock
) -> None:
    nonsense = '{"models":[{"model_id":"a\\u0000b","replica_index":0,"address":"127.0.0.1:1"},'
    nonsense += '{"model_id":"%s","replica_index":0,"address":"127.0.0.1:2"}]}' % ("x" * 300)
    worker.answers(subjects.RUNNING_MODELS, nonsense.encode())
    observing.observe(gateway=hands.gateway, clock=clock)
    assert not StrayProcess.objects.exists()


def test_reaping_twice_is_reaping_once(job: LoadJob, clock: Clock) -> None:
    clock.passes(minutes=1)
    assert reaping.reap(now=clock()) == 0
    assert reaping.reap(now=clock()) == 0
