from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, rule, run_state_machine_as_test

from clustermgr.lib.errors import Forbidden, Gone, InvalidMove
from nodes.models import BackendNode, NodeModel
from nodes.services import (
    admission,
    beating,
    draining,
    lifecycle,
    registration,
    retirement,
    sweeping,
)
from nodes.wire import HeartbeatReport
from tests.factories import make_replica, make_request
from tests.nodes.registry_world import Orders, RegistryWorld


class Registry(RegistryWorld):
    known = Bundle("known")

    @initialize(target=known, working=st.booleans())
    def begin(self, working: bool) -> str:
        """Half of the stories begin in the middle: with a machine at work."""
        self.register("gpu-1", "a")
        if working:
            self.approve("gpu-1")
            self.place_a_replica("gpu-1", 1)
            self.actors = {"worker gpu-1", "ada"}
        return "gpu-1"

    # --- what workers do

    @rule(target=known, name=st.sampled_from(["gpu-1", "gpu-2"]), boot=st.sampled_from(["", "a"]))
    def register(self, name: str, boot: str) -> str:
        orders = self.orders.setdefault(name, Orders())
        now = self.act(f"worker {name}", f"token {self.token.name}", "system")
        with self.refused(Gone, when=orders.retired):
            registration.register(make_request(name, boot_id=boot), token=self.token, now=now)
            orders.left, orders.boot_id = False, boot
        return name

    @rule(name=known)
    def refresh_credentials(self, name: str) -> None:
        orders = self.orders[name]
        serving = set(NodeModel.objects.filter(node__name=name).values_list("pk", flat=True))
        same_process = bool(orders.boot_id) and not orders.left and not orders.retired
        self.register(name, orders.boot_id)
        rows = set(NodeModel.objects.filter(node__name=name).values_list("pk", flat=True))
        assert rows == serving or not same_process

    @rule(name=known)
    def intrude(self, name: str) -> None:
        now = self.act(f"token {self.foreign.name}")
        with self.refused(Forbidden, when=True):
            registration.register(make_request(name, address="x:1"), token=self.foreign, now=now)

    @rule(name=known)
    def beat(self, name: str) -> None:
        node = self.node(name)
        report = HeartbeatReport(available_ram=1)
        beating.record([beating.Beat(node_id=node.pk, received_at=self.act(), report=report)])

    @rule(name=known, act=st.sampled_from([draining.worker_drain, draining.worker_resume]))
    def drain_or_resume_itself(self, name: str, act: Any) -> None:
        now = self.act(f"worker {name}", f"token {self.token.name}")
        with self.refused(Gone, when=self.orders[name].retired):
            act(admission.node_of(self.node(name).pk, token=self.token, now=now), now=now)

    @rule(name=known)
    def leave(self, name: str) -> None:
        now = self.act(f"worker {name}", f"token {self.token.name}")
        with self.refused(Gone, when=self.orders[name].retired):
            node = admission.node_of(self.node(name).pk, token=self.token, now=now)
            lifecycle.leave(node, now=now)
            self.orders[name].left = True

    # --- what operators do

    @rule(name=known)
    def approve(self, name: str) -> None:
        orders = self.orders[name]
        with self.refused(InvalidMove, when=orders.approved or orders.retired):
            registration.approve(self.node(name), by="ada", now=self.act("ada"))
            orders.approved = True

    @rule(name=known)
    def cordon(self, name: str) -> None:
        with self.refused(InvalidMove, when=self.orders[name].retired):
            lifecycle.cordon(self.node(name), by="ada", reason="fan", now=self.act("ada"))
            self.orders[name].cordoned = True

    @rule(name=known)
    def uncordon(self, name: str) -> None:
        with self.refused(InvalidMove, when=self.orders[name].retired):
            lifecycle.uncordon(self.node(name), by="ada", now=self.act("ada"))
            self.orders[name].cordoned = False

    @rule(name=known, patience=st.none() | st.integers(0, 5))
    def drain(self, name: str, patience: int | None) -> None:
        now = self.act("ada")
        deadline = None if patience is None else now + timedelta(seconds=patience)
        with self.refused(InvalidMove, when=self.orders[name].retired):
            draining.drain(self.node(name), by="ada", reason="", now=now, deadline=deadline)
            self.orders[name].drained = True

    @rule(name=known)
    def resume(self, name: str) -> None:
        with self.refused(InvalidMove, when=self.orders[name].retired):
            draining.resume(self.node(name), by="ada", now=self.act("ada"))
            self.orders[name].drained = False

    @rule(name=known)
    def retire(self, name: str) -> None:
        retirement.retire(self.node(name), by="ada", reason="sold", now=self.act("ada"))
        self.orders[name].retired = True

    @rule(name=known)
    def readmit(self, name: str) -> None:
        orders = self.orders[name]
        with self.refused(InvalidMove, when=not orders.retired):
            retirement.readmit(self.node(name), by="ada", now=self.act("ada"))
            orders.retired = orders.approved = False

    # --- what the cluster does by itself

    @rule()
    def sweep(self) -> None:
        sweeping.sweep(now=self.act("system"))

    @rule(name=known, act=st.sampled_from([lifecycle.mark_unreachable, lifecycle.mark_reachable]))
    def notice(self, name: str, act: Any) -> None:
        act(self.node(name).pk, now=self.act("system"), reason="no responders")

    @rule()
    def finish_drains(self) -> None:
        draining.finish_drains(now=self.act("system"))

    @rule(seconds=st.integers(10, 600))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(name=known, in_flight=st.integers(0, 1))
    def place_a_replica(self, name: str, in_flight: int) -> None:
        node = BackendNode.objects.schedulable().filter(name=name, replicas=None).first()
        if node is not None:
            make_replica(node, in_flight=in_flight)


@pytest.mark.django_db(transaction=True)
def test_the_laws_of_the_registry_hold_in_any_order() -> None:
    run_state_machine_as_test(
        Registry,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
