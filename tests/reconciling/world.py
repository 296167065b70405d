"""A cluster whose workers are played by the test: rows change as theirs would.

Loads are begun by whoever hears the bell, and only then; so a lost one shows.
"""

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Least
from django.test import TestCase
from hypothesis.stateful import RuleBasedStateMachine, invariant

from nodes.gateway import NodeGateway
from nodes.models import BackendNode, NodeModel
from nodes.services import labels, replicas
from nodes.states import Liveness, ReplicaState
from nodes.wire import ProcessKey
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig, StrayProcess
from scheduling.planning.plans import Plan
from scheduling.querysets import LoadJobQuerySet
from scheduling.services import (
    hunger,
    loading,
    reaping,
    reconciling,
    rolling,
    strays,
    unloading,
)
from scheduling.states import Cutover, JobState
from tests.factories import GIB, NOW, make_model, make_node, make_rule
from tests.reconciling.played import Process, Workers

SIZES = {"llama": 4 * GIB, "qwen": 8 * GIB}
NODES = ("gpu-1", "gpu-2", "gpu-3")
MEMORY = 10 * GIB  # never both of them on one node
FITS = {"llama": 2, "qwen": 1}  # wherever the first ones are
ROUNDS = 16  # ticks within which everything is as declared, once nothing fails any more


class World(RuleBasedStateMachine):
    queued: ClassVar[list[tuple[Any, ...]]]  # what was rung; the test has it

    def __init__(self) -> None:
        super().__init__()
        self.story = transaction.atomic()
        self.story.__enter__()
        self.now = NOW
        self.edits = 0
        self.heard: set[int] = set()  # jobs that a process of ours knows of
        self.workers = Workers()
        self.gateway = NodeGateway(self.workers)
        for name in NODES:
            node = make_node(
                name,
                max_replicas_per_model=2,
                total_vram=MEMORY,
                available_vram=MEMORY,
            )
            self.workers.join(node.pk)
        fast = BackendNode.objects.get(name=NODES[0])
        labels.replace_admin(fast, {"tier": "fast"}, by="tests", now=NOW)
        for name, size in SIZES.items():
            make_model(name, vram_bytes=size)
            make_rule(name, min_replicas=1, max_replicas=3)

    def teardown(self) -> None:
        try:
            self._calm()
            self._converges()
        finally:
            transaction.set_rollback(True)
            self.story.__exit__(None, None, None)

    def reconcile(self, *, bell_is_lost: bool = False) -> Plan:
        self.now += timedelta(seconds=30)
        self.queued.clear()
        with TestCase.captureOnCommitCallbacks(execute=not bell_is_lost):
            plan = reconciling.tick(now=self.now)
        assert plan is not None
        for name in {one.model for one in plan.place}:
            self._within_maximum(name)
        if not bell_is_lost:
            self._give_up()
        if ("scheduling.send_out",) in self.queued:
            self.ring()
        return plan

    def _give_up(self) -> None:
        """What the bell of a plan does that has no use for some loads."""
        for loads in [args[0] for name, *args in self.queued if name == "scheduling.give_up"]:
            reconciling.give_up(loads, now=self.now)
        for name in SIZES:
            self._nothing_loads_above_maximum(name)

    def ring(self) -> None:
        """What the bell of a plan, and every round of the reaper, does."""
        self.queued.clear()
        with TestCase.captureOnCommitCallbacks(execute=True):
            reaping.send_out(now=self.now)
        self.heard |= {args[0] for name, *args in self.queued if name == "scheduling.run_job"}

    def begun(self) -> LoadJobQuerySet:
        """Loads that somebody is at."""
        return LoadJob.objects.active().filter(pk__in=self.heard).order_by("pk")

    def load(self, job: LoadJob) -> None:
        """The worker has loaded it; what was edited meanwhile is not published."""
        self._ask_to_load(job)
        current = ModelLoadInfo.objects.get(pk=job.model_name).config_revision
        if job.config_revision != current:
            self.fail(job)
            return
        replica = NodeModel.objects.filter(load_job=job)
        replica.update(state=ReplicaState.LOADED, last_used=self.now)
        self._finish(job, JobState.LOADED)
        ModelLoadInfo.objects.filter(pk=job.model_name).update(failures=0, retry_at=None)

    def fail(self, job: LoadJob) -> None:
        self._processes(job).pop(_key(job), None)
        replicas.remove(NodeModel.objects.filter(load_job=job), reason="load failed")
        self._finish(job, JobState.FAILED)
        ModelLoadInfo.objects.filter(pk=job.model_name).update(
            failures=F("failures") + 1, retry_at=self.now + timedelta(seconds=20)
        )

    def stop(self) -> None:
        """Workers have stopped what was to be stopped."""
        for row in NodeModel.objects.filter(state=ReplicaState.UNLOADING).select_related("node"):
            assert unloading._stop(row, gateway=self.gateway) == ""
            with TestCase.captureOnCommitCallbacks(execute=True):
                assert unloading._gone(row, now=self.now)

    def report(self) -> None:
        """Heartbeats say what is free; loads that are over are part of it."""
        self.now += timedelta(seconds=1)
        for node in BackendNode.objects.exclude(liveness=Liveness.OFFLINE):
            node.available_vram = MEMORY - self._used(node)
            node.last_heartbeat = self.now
            node.save(update_fields=["available_vram", "last_heartbeat"])
        with TestCase.captureOnCommitCallbacks(execute=True):
            reaping.reap(now=self.now)

    def lose(self, name: str) -> None:
        """No word of a node for a minute: its rows go. Its processes live, and load on."""
        for job in self.begun().filter(node__name=name):
            self._ask_to_load(job)
        BackendNode.objects.filter(name=name).update(liveness=Liveness.OFFLINE)
        rows = NodeModel.objects.filter(node__name=name)
        with TestCase.captureOnCommitCallbacks(execute=True):
            replicas.lose(rows, reason="Its node went offline.", now=self.now)
        with TestCase.captureOnCommitCallbacks(execute=True):
            reaping.reap(now=self.now)

    def recover(self, name: str) -> None:
        """It beats again."""
        BackendNode.objects.filter(name=name).update(liveness=Liveness.HEALTHY)
        self.report()

    def forget(self, row: NodeModel) -> None:
        """Its process has died."""
        del self.workers.processes[row.node_id][_key(row)]

    def look(self) -> None:
        """What workers run and no row has is taken in or stopped, after a grace."""
        rows = NodeModel.objects.values_list("node_id", "model_name", "replica_index")
        online = BackendNode.objects.exclude(liveness=Liveness.OFFLINE)
        told = {node.pk: self.workers.running(node.pk) for node in online}
        strays.note(told, owned=set(rows), asked_at=self.now)
        for stray_id in strays._due(self.now).filter(node__in=online).values_list("pk", flat=True):
            stray = strays._take(stray_id, now=self.now)
            if stray is not None:
                self._settle(stray)

    def _settle(self, stray: StrayProcess) -> None:
        job = strays._loaded_by(stray)
        routable = BackendNode.objects.routable().filter(pk=stray.node_id).exists()
        if not (job and routable and strays._insert(stray, job, now=self.now)):
            self.gateway.stop_model(
                stray.node_id,
                model_name=stray.model_name,
                replica_index=stray.replica_index,
                address=stray.address,
            )
        stray.delete()

    def _ask_to_load(self, job: LoadJob) -> None:
        assert loading._empty_slot(job, gateway=self.gateway)
        installed = self.gateway.install(
            job.node_id,
            backend=job.backend,
            model_id=job.model_name,
            replica_index=job.replica_index,
        )
        LoadJob.objects.filter(pk=job.pk).update(address=installed.address)
        NodeModel.objects.filter(load_job=job).update(address=installed.address)
        self._processes(job)[_key(job)].loads += 1

    def _processes(self, job: LoadJob) -> dict[ProcessKey, Process]:
        return self.workers.processes[job.node_id]

    def _used(self, node: BackendNode) -> int:
        return sum(SIZES[key.model_id] for key in self.workers.processes[node.pk])

    def edit(self, name: str, cutover: Cutover) -> None:
        self.edits += 1
        model = ModelLoadInfo.objects.get(pk=name)
        model.config_revision = f"edit-{self.edits}"
        model.save(update_fields=["config_revision"])
        rolling.cut_over(model, cutover=cutover, now=self.now)

    def _within_maximum(self, name: str) -> None:
        """Of all that run; a lowered limit is not the tick's doing, a placement is."""
        answering = BackendNode.objects.filter(liveness=Liveness.HEALTHY)
        loaded = NodeModel.objects.filter(state=ReplicaState.LOADED, node__in=answering)
        running = loaded.filter(model_name=name).count()
        assert running + self._coming(name) <= self._limit(name)

    def _nothing_loads_above_maximum(self, name: str) -> None:
        """Not even when it was lowered under way."""
        assert self._coming(name) <= self._limit(name)

    def _coming(self, name: str) -> int:
        revision = ModelLoadInfo.objects.get(pk=name).config_revision
        jobs = LoadJob.objects.active().filter(model_name=name, config_revision=revision)
        return jobs.filter(node__in=BackendNode.objects.routable()).count()

    def _limit(self, name: str) -> int:
        return ModelSchedulingConfig.objects.get(model_name=name).max_replicas

    def _finish(self, job: LoadJob, state: JobState) -> None:
        ended = None if state == JobState.LOADED else self.now
        LoadJob.objects.filter(pk=job.pk).update(
            state=state, finished_at=self.now, due_at=None, reservation_ended_at=ended
        )

    def _calm(self) -> None:
        """Nothing fails from here on, and whoever was busy has finished."""
        BackendNode.objects.update(
            liveness=Liveness.HEALTHY, cordoned_at=None, drain_requested_at=None
        )
        NodeModel.objects.update(in_flight=0)
        ModelSchedulingConfig.objects.update(selector="")  # one node alone may be too small
        for name, most in FITS.items():
            rules = ModelSchedulingConfig.objects.filter(model_name=name)
            rules.update(min_replicas=Least("min_replicas", most))
        hunger.capacity_came()
        self.now += timedelta(seconds=30)

    def _converges(self) -> None:
        for _ in range(ROUNDS):
            self.work()
            plan = self.reconcile()
            if not plan.place and not plan.unload and self._as_declared():
                return
        raise AssertionError(f"after {ROUNDS} ticks: {list(NodeModel.objects.values())}")

    def work(self) -> None:
        """Everybody does what he was rung for."""
        self.ring()
        for job in self.begun():
            self.load(job)
        self.stop()
        self.look()
        self.report()

    def _as_declared(self) -> bool:
        for rule in ModelSchedulingConfig.objects.all():
            serving = NodeModel.objects.serving().filter(model_name=rule.model_name).count()
            if not rule.min_replicas <= serving <= rule.max_replicas:
                return False
        if any(node.keys() != self._rows_on(pk) for pk, node in self.workers.processes.items()):
            return False
        settled = not ModelSchedulingConfig.objects.exclude(unsatisfiable_since=None).exists()
        rolled = not ModelLoadInfo.objects.exclude(rolling_since=None).exists()
        return settled and rolled and not NodeModel.objects.exclude(outdated_at=None).exists()

    def _rows_on(self, node_id: UUID) -> set[ProcessKey]:
        return {_key(row) for row in NodeModel.objects.filter(node=node_id)}

    @invariant()
    def no_memory_is_promised_twice(self) -> None:
        for node in BackendNode.objects.all():
            there = self.workers.processes[node.pk]
            coming = node.load_jobs.active()
            promised = sum(job.reserved_vram for job in coming if _key(job) not in there)
            assert self._used(node) + promised <= MEMORY

    @invariant()
    def nothing_is_loaded_into_twice(self) -> None:
        running = self.workers.processes.values()
        assert all(process.loads <= 1 for node in running for process in node.values())

    @invariant()
    def whoever_is_loaded_has_its_process(self) -> None:
        for row in NodeModel.objects.filter(state=ReplicaState.LOADED):
            assert self.workers.processes[row.node_id][_key(row)].address == row.address

    @invariant()
    def every_load_has_its_slot(self) -> None:
        for job in LoadJob.objects.active().select_related("replica"):
            assert job.replica is not None
            assert job.replica.replica_index == job.replica_index < 2
            assert job.replica.model_name == job.model_name


def _key(slot: NodeModel | LoadJob) -> ProcessKey:
    return ProcessKey(model_id=slot.model_name, replica_index=slot.replica_index)
