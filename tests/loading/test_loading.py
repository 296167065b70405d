import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from nodes.models import ClusterEvent, NodeModel
from nodes.states import Liveness, ReplicaState
from nodes.wire.subjects import CANCEL
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import jobs, loading
from scheduling.states import JobState
from tests.contract_worker.ours import until
from tests.factories import make_model, make_node
from tests.loading.conftest import Stage, begin
from tests.scripted import ScriptedWorker

GIB = 2**30


def test_a_job_brings_a_process_up_loads_the_model_and_publishes_it(stage: Stage) -> None:
    model = stage.model(failures=2, last_error="before")
    job = stage.load(stage.job(model))
    assert (job.state, job.last_error, job.percentage) == (JobState.LOADED, "", 100.0)
    replica = NodeModel.objects.serving().get()
    assert replica.address == job.address
    assert (replica.backend_type, replica.config_revision) == ("reference", "r1")
    assert len(replica.effective_options_hash) == 64
    assert stage.running() == {"llama#0"}
    model.refresh_from_db()
    assert (model.failures, model.retry_at, model.last_error) == (0, None, "")
    assert ClusterEvent.objects.get(kind="replica.loaded").subject == "llama#0"
    assert job.progress_at is not None  # the backend had to be fetched
    assert stage.is_sound()


def test_two_bells_for_one_job_load_it_once(stage: Stage) -> None:
    job = stage.job(stage.model("llama", "load_seconds:1"))
    running = begin(stage, job)
    assert not loading.run(job.pk, hands=stage.executor())
    assert running.result(30)
    assert not loading.run(job.pk, hands=stage.executor())
    assert stage.fresh(job).fence == 1


@pytest.mark.parametrize(
    ("knob", "words"),
    [
        ("load_fails:status", "load_fails is set (INTERNAL)"),
        ("load_fails:result", "load_fails is set"),
        ("crash:at_load", "The backend process ended or cannot be reached"),
        ("memory_bytes:plenty", "memory_bytes"),
    ],
)
def test_a_load_that_fails_says_why_and_leaves_nothing(stage: Stage, knob: str, words: str) -> None:
    model = stage.model("llama", knob)
    job = stage.load(stage.job(model))
    assert job.state == JobState.FAILED
    assert words in job.last_error
    model.refresh_from_db()
    assert (model.failures, model.last_error) == (1, f"{job.node.name}: {job.last_error}")
    assert model.retry_at is not None
    assert job.finished_at is not None
    assert model.retry_at - job.finished_at == timedelta(seconds=10)
    assert not NodeModel.objects.exists()
    assert stage.running() == set()
    assert ClusterEvent.objects.get(kind="replica.load_failed").reason == job.last_error
    assert stage.is_sound()


def test_a_model_that_cannot_load_is_tried_ever_less_often(stage: Stage) -> None:
    model = stage.model("llama", "load_fails:result")
    pauses = []
    for _ in range(7):
        job = stage.load(stage.job(model))
        model.refresh_from_db()
        assert model.retry_at is not None
        assert job.finished_at is not None
        pauses.append((model.retry_at - job.finished_at).total_seconds())
    assert pauses == [10, 20, 40, 80, 160, 300, 300]


def test_options_that_no_backend_takes_are_told_in_a_sentence(stage: Stage) -> None:
    model = make_model(options={"ContextSize": "many"})
    job = stage.load(stage.job(model))
    assert job.state == JobState.FAILED
    assert job.last_error.startswith("The options of llama are not what a backend takes")
    assert stage.running() == set()


def test_a_backend_that_nobody_has_fails_with_the_workers_words(stage: Stage) -> None:
    job = stage.load(stage.job(stage.model(backend="nonesuch"), backend="nonesuch"))
    assert job.state == JobState.FAILED
    assert "nonesuch" in job.last_error
    assert not NodeModel.objects.exists()


def test_a_node_whose_secret_we_do_not_know_is_told_apart(stage: Stage) -> None:
    type(stage.node).objects.filter(pk=stage.node.pk).update(join_token=None)
    job = stage.load(stage.job(stage.model()))
    assert job.state == JobState.FAILED
    assert "has to register again" in job.last_error
    assert ModelLoadInfo.objects.get().failures == 0


def test_nobody_listening_is_the_nodes_fault_and_not_the_models(stage: Stage) -> None:
    long_ago = stage.clock() - timedelta(days=1)
    away = make_node("away", approved_at=long_ago, join_token=stage.node.join_token)
    model = stage.model()
    job = stage.job(model)
    LoadJob.objects.filter(pk=job.pk).update(node=away)
    NodeModel.objects.update(node=away)
    job = stage.load(job)
    assert job.state == JobState.FAILED
    away.refresh_from_db()
    model.refresh_from_db()
    assert (away.liveness, model.failures) == (Liveness.UNHEALTHY, 0)
    assert not NodeModel.objects.exists()


def test_an_edit_during_the_load_is_not_published_and_its_process_goes(stage: Stage) -> None:
    job = stage.job(stage.model("llama", "load_seconds:2"))
    running = begin(stage, job)
    ModelLoadInfo.objects.update(config_revision="r2")
    assert running.result(30)
    job = stage.fresh(job)
    assert (job.state, job.replica) == (JobState.CANCELLED, None)
    assert "edited" in job.last_error
    assert not NodeModel.objects.exists()
    assert stage.running() == set()
    assert ModelLoadInfo.objects.get().failures == 0


def test_an_edit_before_the_load_costs_no_process(stage: Stage) -> None:
    job = stage.job(stage.model())
    ModelLoadInfo.objects.update(config_revision="r2")
    assert stage.load(job).state == JobState.CANCELLED
    assert stage.running() == set()
    assert not NodeModel.objects.exists()


def test_a_load_that_takes_too_long_is_ended_with_its_process(
    stage: Stage, turn: Callable[..., None]
) -> None:
    turn(load_within=timedelta(seconds=1))
    other = stage.loaded("other")
    job = stage.load(stage.job(stage.model("llama", "load_seconds:60")))
    assert job.state == JobState.FAILED
    assert "still loading" in job.last_error
    assert stage.running() == {"other#0"}
    assert NodeModel.objects.get() == other


def test_a_cancelled_load_ends_with_exactly_its_process(stage: Stage) -> None:
    other = stage.loaded("other")
    job = stage.job(stage.model("llama", "load_seconds:60"))
    running = begin(stage, job)
    assert jobs.cancel(stage.fresh(job), "ada changed her mind", now=stage.clock(), by="ada")
    row = NodeModel.objects.get(model_name="llama")
    assert row.state == ReplicaState.UNLOADING  # its slot stays taken until the stop is confirmed
    assert stage.rung("scheduling.stop_replica") == [[str(row.pk)]]
    assert running.result(30)
    assert stage.fresh(job).state == JobState.CANCELLED
    assert NodeModel.objects.exclude(pk=row.pk).get() == other


def test_an_install_that_nobody_wants_any_more_is_called_off(stage: Stage) -> None:
    job = stage.job(stage.model("llama"))
    assert jobs.cancel(job, "not yet begun", now=stage.clock())
    assert stage.rung("scheduling.cancel_install") == []
    job = stage.job(stage.model("qwen"))
    claimed = jobs.claim(job.pk, by="us", now=stage.clock())
    assert claimed is not None
    assert jobs.cancel(stage.fresh(job), "ada changed her mind", now=stage.clock(), by="ada")
    op_id = f"load-{job.pk}-1"
    assert stage.rung("scheduling.cancel_install") == [[str(stage.node.pk), op_id]]
    with ScriptedWorker() as worker:
        worker.answers(CANCEL, b'{"cancelled":true}')
        loading.cancel_install(worker.node_id, op_id=op_id, gateway=stage.gateway)
        assert json.loads(worker.payload()) == {"op_id": op_id}
    stranger = make_node("localai")  # hears no such thing: that is no reason to doubt it
    loading.cancel_install(stranger.pk, op_id=op_id, gateway=stage.gateway)
    stranger.refresh_from_db()
    assert stranger.liveness == Liveness.HEALTHY


def test_more_loads_than_allowed_at_once_wait_their_turn(
    stage: Stage, turn: Callable[..., None]
) -> None:
    turn(loads_at_once=1)
    first = begin(stage, stage.job(stage.model("llama", "load_seconds:2")))
    second = stage.job(stage.model("other"))
    assert not loading.run(second.pk, hands=stage.hands)
    first.result(30)
    assert stage.load(second).state == JobState.LOADED


def test_the_size_of_a_model_gives_it_time_up_to_a_bound() -> None:
    assert loading.load_within(None) == timedelta(minutes=5)
    assert loading.load_within(3 * GIB) == timedelta(minutes=6)
    assert loading.load_within(10_000 * GIB) == timedelta(hours=6)


def test_a_waiting_thread_holds_no_connection(stage: Stage) -> None:
    job = stage.job(stage.model("llama", "load_seconds:2"))
    opened: list[bool] = []

    def run() -> None:
        loading.run(job.pk, hands=stage.hands)

    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("""
                SELECT count(*) FROM pg_stat_activity
                 WHERE state LIKE 'idle in%' AND datname = current_database()
            """)
            opened.append(cursor.fetchone()[0] > 0)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: stage.fresh(job).state == JobState.LOADING)
    look()
    thread.join(60)
    assert opened == [False]
