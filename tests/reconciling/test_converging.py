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
from tests.reconciling.world import NODES, SIZES, World

names = st.sampled_from(NODES)
models = st.sampled_from(sorted(SIZES))


class Faults(World):
    @rule(bell_is_lost=st.booleans())
    def tick(self, bell_is_lost: bool) -> None:
        self.reconcile(bell_is_lost=bell_is_lost)

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

    @rule(name=names, liveness=st.sampled_from(Liveness))
    def a_node_falls_ill_or_recovers(self, name: str, liveness: Liveness) -> None:
        BackendNode.objects.filter(name=name).update(liveness=liveness)

    @rule(name=names, on=st.booleans())
    def an_operator_cordons(self, name: str, on: bool) -> None:
        BackendNode.objects.filter(name=name).update(cordoned_at=self.now if on else None)

    @rule(name=names, on=st.booleans())
    def an_operator_drains(self, name: str, on: bool) -> None:
        BackendNode.objects.filter(name=name).update(drain_requested_at=self.now if on else None)

    @rule(name=names)
    def a_node_loses_its_processes(self, name: str) -> None:
        loaded = NodeModel.objects.filter(node__name=name, state=ReplicaState.LOADED)
        replicas.remove(loaded, reason="gone")

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
