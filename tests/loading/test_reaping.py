"""Our own processes die at every point; the next one goes on."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import connection

from clustermgr.lib.bus import NatsBus
from nodes import backendrpc
from nodes.gateway import NodeGateway
from nodes.models import NodeModel
from nodes.services import replicas
from nodes.states import ReplicaState
from nodes.wire import Gallery
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import jobs, loading, reaping, unloading
from scheduling.states import JobState
from tests.contract_worker.ours import ROOT, until
from tests.factories import make_replica
from tests.loading.conftest import Stage, begin

# What `scheduling.run_job` does, in a process that a test can kill
EXECUTOR = """
import sys, django
django.setup()
from dataclasses import replace
from django.conf import settings
from clustermgr.conf import GallerySource
from django.db import connection
settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = sys.argv[2]
settings.CLUSTER = replace(
    settings.CLUSTER, backend_galleries=(GallerySource(name="builtin", url=sys.argv[3]),)
)
from scheduling import tasks
tasks.run_job(int(sys.argv[1]))
"""


@contextmanager
def executor(stage: Stage, job: LoadJob) -> Iterator["subprocess.Popen[bytes]"]:
    database = str(connection.settings_dict["NAME"])
    command = [sys.executable, "-c", EXECUTOR, str(job.pk), database, stage.real.gallery.url]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "clustermgr.settings"}
    with subprocess.Popen(command, cwd=ROOT, env=env) as process:
        yield process
        if process.poll() is None:
            process.kill()


def reaches(stage: Stage, job: LoadJob, state: JobState) -> Callable[[], bool]:
    return lambda: stage.fresh(job).state == state


def pids(stage: Stage) -> list[int]:
    return [child.pid for child in stage.real.worker.family() if "--addr" in child.cmdline()]


def test_a_killed_executor_while_loading_costs_a_lease_and_nothing_loads_twice(
    stage: Stage,
) -> None:
    job = stage.job(stage.model("llama", "load_seconds:60"))
    with executor(stage, job) as process:
        until(reaches(stage, job, JobState.LOADING))
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    [first] = pids(stage)
    stage.reap()
    assert stage.fresh(job).state == JobState.LOADING  # its lease may still be renewed
    stage.clock.passes(minutes=1)
    stage.reap()
    assert stage.fresh(job).state == JobState.PENDING
    assert stage.rung("scheduling.run_job") == [[job.pk]]
    assert stage.is_sound()
    job.options["Options"] = []
    LoadJob.objects.filter(pk=job.pk).update(options=job.options)
    done = stage.load(job)
    assert (done.state, done.fence, done.last_error) == (JobState.LOADED, 2, "")
    [second] = pids(stage)
    assert second != first  # what may have been loading was stopped before
    assert stage.is_sound()


def test_a_killed_executor_while_installing_is_followed_by_one_that_begins_anew(
    stage: Stage,
) -> None:
    job = stage.job(stage.model())
    assert jobs.claim(job.pk, by="dead", now=stage.clock())
    galleries = [Gallery(name="builtin", url=stage.real.gallery.url)]
    stage.gateway.install(stage.node.pk, backend="reference", model_id="llama", galleries=galleries)
    started = pids(stage)
    stage.clock.passes(minutes=1)
    stage.reap()
    assert stage.load(job).state == JobState.LOADED
    [process] = pids(stage)
    assert [process] != started  # nobody wrote down whose it was


def test_what_a_dead_executor_has_staged_is_loaded_into(stage: Stage) -> None:
    job = stage.job(stage.model())
    claimed = jobs.claim(job.pk, by="dead", now=stage.clock())
    assert claimed is not None
    galleries = [Gallery(name="builtin", url=stage.real.gallery.url)]
    installed = stage.gateway.install(
        stage.node.pk, backend="reference", model_id="llama", galleries=galleries
    )
    started = pids(stage)
    assert jobs.stage(claimed, address=installed.address, now=stage.clock())
    stage.clock.passes(minutes=1)
    stage.reap()
    assert stage.load(job).state == JobState.LOADED
    assert pids(stage) == started


def test_a_killed_executor_while_staging_is_followed_too(stage: Stage) -> None:
    job = stage.job(stage.model())
    claimed = jobs.claim(job.pk, by="dead", now=stage.clock())
    assert claimed is not None
    assert jobs.stage(claimed, address="localhost:1", now=stage.clock())
    stage.clock.passes(minutes=1)
    stage.reap()
    assert stage.load(job).state == JobState.LOADED
    assert stage.is_sound()


def test_an_executor_that_was_only_paused_cannot_touch_its_successors_work(stage: Stage) -> None:
    job = stage.job(stage.model())
    paused = jobs.claim(job.pk, by="paused", now=stage.clock())
    assert paused is not None
    stage.clock.passes(minutes=1)
    stage.reap()
    successor = jobs.claim(job.pk, by="successor", now=stage.clock())
    assert successor is not None
    assert not jobs.stage(paused, address="localhost:1", now=stage.clock())
    assert not jobs.fail(paused, "late", now=stage.clock(), process=False)
    assert not jobs.give_up(paused, "late", now=stage.clock(), process=False)
    assert not jobs.put_back(paused, "late", now=stage.clock(), due_at=stage.clock())
    assert jobs.put_back(successor, "", now=stage.clock(), due_at=stage.clock())
    assert stage.load(job).state == JobState.LOADED
    assert not jobs.fail(paused, "late", now=stage.clock(), process=False)
    assert not jobs.give_up(paused, "late", now=stage.clock(), process=False)
    assert not jobs.put_back(paused, "late", now=stage.clock(), due_at=stage.clock())
    assert not jobs.publish(paused, now=stage.clock())
    assert NodeModel.objects.get().state == ReplicaState.LOADED


def test_a_lease_is_renewed_as_long_as_its_process_lives(stage: Stage) -> None:
    job = stage.job(stage.model("llama", "load_seconds:3"))
    with executor(stage, job) as process:
        until(reaches(stage, job, JobState.LOADING))
        before = stage.fresh(job).lease_until
        until(lambda: stage.fresh(job).lease_until != before)
        assert process.wait(60) == 0
    assert stage.fresh(job).state == JobState.LOADED


def test_a_process_that_outlived_its_row_is_not_loaded_into_again(stage: Stage) -> None:
    stage.loaded()
    [first] = pids(stage)
    lose_node(stage)
    ModelLoadInfo.objects.update(config_revision="r2")
    assert stage.load(stage.job(ModelLoadInfo.objects.get())).state == JobState.LOADED
    [second] = pids(stage)
    assert second != first


def test_a_process_that_loads_on_after_its_node_was_lost_is_not_loaded_into_again(
    stage: Stage,
) -> None:
    job = stage.job(stage.model("llama", "load_seconds:60"))
    running = begin(stage, job)
    [first] = pids(stage)
    lose_node(stage)
    stage.reap()
    assert stage.fresh(job).state == JobState.CANCELLED
    assert running.result(60)
    model = ModelLoadInfo.objects.get()
    model.options["Options"] = []
    assert stage.load(stage.job(model)).state == JobState.LOADED
    [second] = pids(stage)
    assert second != first


def test_a_process_that_outlived_its_row_is_in_the_way_of_later_claims_too(stage: Stage) -> None:
    stage.loaded()
    [first] = pids(stage)
    lose_node(stage)
    job = stage.job(ModelLoadInfo.objects.get())
    cut_off = NatsBus(replace(stage.gateway.cluster, nats_url="nats://127.0.0.1:9"))
    assert loading.run(job.pk, hands=replace(stage.hands, gateway=NodeGateway(cut_off)))
    cut_off.close()
    assert stage.fresh(job).state == JobState.PENDING
    stage.clock.passes(seconds=5)
    assert stage.load(job).state == JobState.LOADED
    [second] = pids(stage)
    assert second != first


def lose_node(stage: Stage) -> None:
    """It fell silent for a minute, as far as we know; its processes did not notice."""
    replicas.lose(NodeModel.objects.all(), reason="offline", now=stage.clock())


def test_a_job_whose_worker_left_meanwhile_ends(stage: Stage) -> None:
    job = stage.job(stage.model())
    replicas.remove(NodeModel.objects.all(), reason="worker left")
    stage.reap()
    job = stage.fresh(job)
    assert (job.state, job.finished_at is not None) == (JobState.CANCELLED, True)
    assert stage.is_sound()


def test_a_load_on_a_node_that_is_being_drained_is_called_off(stage: Stage) -> None:
    job = stage.job(stage.model())
    type(stage.node).objects.filter(pk=stage.node.pk).update(
        drain_requested_at=stage.clock(), drain_requested_by="ada"
    )
    stage.reap()
    assert stage.fresh(job).state == JobState.CANCELLED
    assert not NodeModel.objects.exists()


@pytest.mark.parametrize("state", [ReplicaState.STAGING, ReplicaState.LOADING])
def test_a_row_that_nobody_brings_up_gives_its_slot_back(stage: Stage, state: ReplicaState) -> None:
    row = make_replica(stage.node, state=state, address="localhost:1")
    _, wedged = reaping.wedged(now=stage.clock())
    assert wedged.get() == row
    stage.reap()
    assert stage.is_sound()
    assert [str(row.pk)] in stage.rung("scheduling.stop_replica")
    assert unloading.stop(row.pk, gateway=stage.gateway, clock=stage.clock)
    assert not NodeModel.objects.exists()


def test_a_lost_bell_is_rung_again(stage: Stage) -> None:
    job = stage.job(stage.model())
    stage.reap()
    assert stage.rung("scheduling.run_job") == [[job.pk]]


def test_a_process_of_ours_that_is_told_to_stop_puts_its_load_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backendrpc, "_leaving", threading.Event())
    job = stage.job(stage.model("llama", "load_seconds:60"))
    running = begin(stage, job)
    backendrpc.stop_waiting()
    assert running.result(10)
    job = stage.fresh(job)
    assert job.state == JobState.PENDING
    assert job.due_at is not None
    assert job.due_at <= stage.clock()
