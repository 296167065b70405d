"""Whatever happens to two machines, in whatever order, some things must never be seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from clustermgr.lib.errors import DomainError, Forbidden, Gone, InvalidMove
from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import (
    admission,
    beating,
    draining,
    lifecycle,
    registration,
    retirement,
)
from nodes.wire import HeartbeatReport
from tests.factories import NOW, make_replica, make_request, make_token

FACTS = (
    *("approved_at", "retired_at", "cordoned_at", "left_at", "liveness"),
    *("drain_requested_at", "drain_by_worker", "drain_deadline", "drained_at"),
)
SEEN = (*FACTS, "name", "address", "boot_id", "join_token_id")


@dataclass
class Orders:
    """What people decided about one node, and whether its worker said goodbye."""

    approved: bool = False
    retired: bool = False
    cordoned: bool = False
    drained: bool = False
    left: bool = False
    boot_id: str = ""


class Registry(RuleBasedStateMachine):
    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.before_all = transaction.savepoint()
        self.now = NOW
        self.token, self.foreign = make_token(), make_token()
        self.orders: dict[str, Orders] = {}
        self.pictures: dict[str, dict[str, Any]] = {}
        self.heard = 0  # id of the newest event already looked at
        self.actors: set[str] = set()

    def teardown(self) -> None:
        transaction.savepoint_rollback(self.before_all)

    def node(self, name: str) -> BackendNode:
        return BackendNode.objects.get(name=name)

    def act(self, *actors: str) -> datetime:
        """A second later, something is done; events may name nobody but `actors`."""
        self.actors = set(actors)
        self.now += timedelta(seconds=1)
        return self.now

    @contextmanager
    def refused(self, kind: type[DomainError], *, when: bool) -> Iterator[None]:
        """The act inside must be refused exactly when the orders say so."""
        try:
            yield
        except kind:
            assert when, f"{kind.__name__} out of place"
        else:
            assert not when, f"{kind.__name__} was due"

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
        now = self.act(f"worker {name}", f"token {self.token.name}")
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

    # --- what the cluster does by itself; the health sweep belongs here

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

    # --- what must never be seen

    @invariant()
    def the_laws_hold(self) -> None:
        rows = {row["name"]: row for row in BackendNode.objects.values(*SEEN)}
        assert sorted(rows) == sorted(self.orders), "one row per name, and none without"
        routable = set(BackendNode.objects.routable().values_list("name", flat=True))
        self.nobody_works_without_approval(routable)
        serving = NodeModel.objects.serving().values_list("node__name", flat=True)
        assert set(serving) <= routable
        for name, row in rows.items():
            self.only_people_change_what_people_ordered(self.orders[name], row)
        self.every_change_is_written_down_with_its_author(rows)

    def nobody_works_without_approval(self, routable: set[str]) -> None:
        for name in routable:
            orders = self.orders[name]
            kept_away = orders.retired or orders.drained or orders.left
            assert orders.approved
            assert not kept_away

    def only_people_change_what_people_ordered(self, orders: Orders, row: dict[str, Any]) -> None:
        assert orders == Orders(
            approved=row["approved_at"] is not None,
            retired=row["retired_at"] is not None,
            cordoned=row["cordoned_at"] is not None,
            drained=row["drain_requested_at"] is not None and not row["drain_by_worker"],
            left=row["left_at"] is not None,
            boot_id=row["boot_id"],
        )
        assert row["address"] == f"{row['name']}.example:50051"
        assert row["join_token_id"] == self.token.pk

    def every_change_is_written_down_with_its_author(self, rows: dict[str, Any]) -> None:
        news = list(
            ClusterEvent.objects.filter(pk__gt=self.heard).values_list("pk", "subject", "actor")
        )
        assert {actor for _, _, actor in news} <= self.actors
        told = {subject for _, subject, _ in news}
        for name, row in rows.items():
            picture = {fact: row[fact] for fact in FACTS}
            assert self.pictures.get(name) == picture or name in told
            self.pictures[name] = picture
        self.heard = max([self.heard, *(pk for pk, _, _ in news)])
        self.actors = set()


@pytest.mark.django_db
def test_the_laws_of_the_registry_hold_in_any_order() -> None:
    run_state_machine_as_test(
        Registry,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
