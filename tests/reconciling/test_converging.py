from typing import Any

import pytest
from django.db.models.functions import Least
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from nodes.models import BackendNode, NodeModel
from nodes.services import replicas
from nodes.states import Liveness, ReplicaState
from scheduling.models import ModelSchedulingConfig
from scheduling.states import Cutover
from tests.reconciling.world import FITS, NODES, SIZES, World

names = st.sampled_from(NODES)
models = st.sampled_from(sorted(SIZES))


class Faults(World):
    @rule(bell_is_lost=st.booleans())
    def tick(self, bell_is_lost: bool) -> None:
        self.reconcile(bell_is_lost=bell_is_lost)

    @rule()
    def a_minute_without_trouble(self) -> None:
        for _ in range(2):
            self.work()
            self.reconcile()

    @rule()
    def the_reaper_rings_for_what_is_due(self) -> None:
        self.ring()

    @rule(succeeds=st.booleans())
    def one_load_ends(self, succeeds: bool) -> None:
        job = self.begun().first()
        if job is not None:
            self.load(job) if succeeds else self.fail(job)

    @rule()
    def stops_end(self) -> None:
        self.stop()

    @rule()
    def nodes_report(self) -> None:
        self.report()

    @rule(name=names)
    def a_node_does_not_answer(self, name: str) -> None:
        healthy = BackendNode.objects.filter(name=name, liveness=Liveness.HEALTHY)
        healthy.update(liveness=Liveness.UNHEALTHY)

    @rule(name=names)
    def a_node_falls_silent(self, name: str) -> None:
        self.lose(name)

    @rule(name=names)
    def a_node_recovers(self, name: str) -> None:
        self.recover(name)

    @rule(names=st.sets(names, min_size=1))
    def nodes_fall_silent_for_a_minute(self, names: set[str]) -> None:
        """Whatever is placed next may come to where something still runs."""
        for name in names:
            self.lose(name)
        for name in names:
            self.recover(name)
        self.reconcile()
        self.work()

    @rule()
    def workers_are_asked_what_they_run(self) -> None:
        self.look()

    @rule(name=names, on=st.booleans())
    def an_operator_cordons(self, name: str, on: bool) -> None:
        BackendNode.objects.filter(name=name).update(cordoned_at=self.now if on else None)

    @rule(name=names, on=st.booleans())
    def an_operator_drains(self, name: str, on: bool) -> None:
        BackendNode.objects.filter(name=name).update(drain_requested_at=self.now if on else None)

    @rule(name=names)
    def a_node_loses_its_processes(self, name: str) -> None:
        loaded = NodeModel.objects.filter(node__name=name, state=ReplicaState.LOADED)
        for row in replicas.remove(loaded, reason="gone"):
            self.forget(row)

    @rule(model=models, cutover=st.sampled_from(Cutover))
    def somebody_edits(self, model: str, cutover: Cutover) -> None:
        self.edit(model, cutover)

    @rule(model=models, least=st.integers(0, 3), more=st.integers(0, 1))
    def somebody_changes_the_rule(self, model: str, least: int, more: int) -> None:
        most = max(least + more, 1)
        ModelSchedulingConfig.objects.filter(model_name=model).update(
            min_replicas=least, max_replicas=most
        )

    @rule(model=models)
    def somebody_lowers_the_maximum(self, model: str) -> None:
        ModelSchedulingConfig.objects.filter(model_name=model).update(
            min_replicas=Least("min_replicas", 1), max_replicas=1
        )

    @rule(first=models)
    def more_is_wanted_while_loads_are_under_way(self, first: str) -> None:
        """More than fits: what was promised to the one is not the other's."""
        for name in sorted(SIZES, key=lambda name: name != first):
            rules = ModelSchedulingConfig.objects.filter(model_name=name)
            rules.update(min_replicas=3, max_replicas=3)
            self.reconcile()

    @rule(model=models)
    def all_want_one_model(self, model: str) -> None:
        """What is too many of the other one has to make room."""
        for name, fits in FITS.items():
            least = fits if name == model else 0
            ModelSchedulingConfig.objects.filter(model_name=name).update(
                min_replicas=least, max_replicas=3
            )
        self.work()
        self.reconcile()

    @rule(model=models, selector=st.sampled_from(["", "tier=fast"]))
    def somebody_changes_the_selector(self, model: str, selector: str) -> None:
        ModelSchedulingConfig.objects.filter(model_name=model).update(selector=selector)

    @rule(model=models, number=st.integers(0, 2))
    def requests_come_and_go(self, model: str, number: int) -> None:
        serving = NodeModel.objects.serving().filter(model_name=model)
        serving.update(in_flight=number, last_used=self.now)


@pytest.mark.django_db(transaction=True)
def test_whatever_happens_the_declared_state_is_reached_once_nothing_fails_any_more(
    queued: list[tuple[Any, ...]],
) -> None:
    World.queued = queued
    run_state_machine_as_test(
        Faults,
        settings=settings(
            max_examples=25,
            phases=(Phase.reuse, Phase.generate),  # a story of rows takes hours to shrink
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
