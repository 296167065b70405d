"""A real worker with the reference backend in front of the real executor; only HTTP is a stage."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.db import connection

from clustermgr.conf import GallerySource
from clustermgr.lib.bus import NatsBus
from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.services import environment
from nodes.states import ReplicaState
from nodes.wire import ProcessKey
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import loading, reaping
from scheduling.services.desk import Desk
from scheduling.services.loading import Hands
from scheduling.states import JobState
from tests.contract_worker.background import Background
from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.ours import OurWorker, until
from tests.factories import make_job, make_model, make_node, make_replica
from worker import builtin


class Clock:
    """The real time, and what a test says has passed besides."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def passes(self, **duration: float) -> datetime:
        self.ahead += timedelta(**duration)
        return self()


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """What outlives a test: the worker's process, and the way to it."""

    worker: OurWorker
    gateway: NodeGateway
    node_id: UUID
    gallery: GallerySource

    def listens(self) -> bool:
        [answer] = self.gateway.running_models_of([self.node_id]).values()
        return isinstance(answer, tuple)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    home = tmp_path_factory.mktemp("worker")
    cluster = django_settings.CLUSTER
    index, _ = builtin.galleries(Path(home) / "galleries")
    bus = NatsBus(cluster)
    with Background() as background:
        plane = ControlPlane(token=cluster.registration_token)
        plane.start(background)
        token = cluster.registration_token
        worker = OurWorker(home, url=plane.url, nats=cluster.nats_url, token=token)
        worker.start()
        made = Real(
            worker=worker,
            gateway=NodeGateway(bus, cluster=cluster),
            node_id=UUID(plane.node_id),
            gallery=GallerySource(name=index.name, url=index.url),
        )
        until(made.listens)
        yield made
        worker.kill()
        bus.close()
        plane.stop(background)


@dataclass(kw_only=True)
class Stage:
    real: Real
    node: BackendNode
    queued: list[tuple[Any, ...]]
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.hands = self.executor()

    @property
    def gateway(self) -> NodeGateway:
        return self.real.gateway

    @property
    def hasty(self) -> NodeGateway:
        """A manager that waits a moment only."""
        moment = timedelta(milliseconds=300)
        cluster = replace(self.gateway.cluster, running_timeout=moment, stop_timeout=moment)
        return NodeGateway(self.gateway.bus, cluster=cluster)

    def executor(self) -> Hands:
        """A process of ours: it renews what it holds."""
        return Hands(gateway=self.gateway, desk=Desk(clock=self.clock), clock=self.clock)

    def model(self, name: str = "llama", *knobs: str, **changes: Any) -> ModelLoadInfo:
        """A definition that loads as its knobs say (worker/reference/knobs.py)."""
        options = {"Model": name, "ContextSize": 512, "Options": list(knobs)}
        return make_model(name, **{"options": options, **changes})

    def job(self, model: ModelLoadInfo, index: int = 0, **changes: Any) -> LoadJob:
        """What the reconciler writes: the row that takes the slot, and its job."""
        now = self.clock()
        replica = make_replica(
            self.node,
            model.model_name,
            index,
            state=ReplicaState.STAGING,
            address="",
            config_revision=model.config_revision,
            created_at=now,
            updated_at=now,
        )
        values = {
            "config_revision": model.config_revision,
            "options": model.options,
            "replica": replica,
            "created_at": now,
            "changed_at": now,
            "due_at": now,
        }
        return make_job(self.node, model.model_name, index, **{**values, **changes})

    def load(self, job: LoadJob) -> LoadJob:
        until(lambda: self._tried(job))
        return self.fresh(job)

    def _tried(self, job: LoadJob) -> bool:
        """False: what the test before left is still being stopped; due again."""
        assert loading.run(job.pk, hands=self.hands)
        waits = self.fresh(job).last_error.endswith(loading.STOPPING)
        if waits:
            self.clock.passes(seconds=5)
        return not waits

    def fresh(self, job: LoadJob) -> LoadJob:
        return LoadJob.objects.select_related("replica", "node").get(pk=job.pk)

    def loaded(self, name: str = "llama", *knobs: str, index: int = 0) -> NodeModel:
        known = ModelLoadInfo.objects.filter(pk=name).first()
        job = self.load(self.job(known or self.model(name, *knobs), index))
        assert job.replica is not None, job.last_error
        return job.replica

    def running(self) -> set[str]:
        found = self.gateway.running_models(self.node.pk)
        keys = (ProcessKey(model_id=one.model_id, replica_index=one.replica_index) for one in found)
        return set(map(str, keys))

    def reap(self) -> None:
        reaping.reap(now=self.clock())

    def rung(self, task: str) -> list[Any]:
        return [arguments for name, *arguments in self.queued if name == task]

    def is_sound(self) -> bool:
        """The invariant: nothing is stuck, and no reservation outlives its job."""
        jobs, rows = reaping.wedged(now=self.clock())
        held = LoadJob.objects.reserving()
        amount = sum(job.reserved_vram for job in held)
        self.node.refresh_from_db()
        return not jobs.exists() and not rows.exists() and amount == self.node.reserved_vram


def begin(stage: Stage, job: LoadJob) -> Future[bool]:
    """Load on another thread, as a task does; returns once the backend was asked to load."""

    def run() -> bool:
        try:
            return loading.run(job.pk, hands=stage.hands)
        finally:
            connection.close()

    crowd = ThreadPoolExecutor(1)
    running = crowd.submit(run)
    crowd.shutdown(wait=False)
    until(lambda: stage.fresh(job).state == JobState.LOADING)
    return running


@pytest.fixture
def stage(
    real: Real, transactional_db: None, queued: list[tuple[Any, ...]], turn: Callable[..., None]
) -> Iterator[Stage]:
    turn(backend_galleries=(real.gallery,))
    now = datetime.now(UTC)
    token = environment.sync(django_settings.CLUSTER.registration_token, auto_approve=True, now=now)
    node = make_node(
        "gpu-1",
        id=real.node_id,
        join_token=token,
        address=f"localhost:{real.worker.base + 1}",
        last_heartbeat=now,
        approved_at=now - timedelta(days=1),
        total_vram=8 * 2**30,
        available_vram=8 * 2**30,
    )
    yield Stage(real=real, node=node, queued=queued)
    if real.worker.alive():
        real.gateway.stop_everything(real.node_id, force=True)
        until(lambda: real.worker.family() == [])  # what still stops is not listed any more


@pytest.fixture
def turn(settings: Any) -> Callable[..., None]:
    """Turn knobs of the cluster for one test."""

    def knobs(**changes: Any) -> None:
        settings.CLUSTER = replace(settings.CLUSTER, **changes)

    return knobs
