"""The stage of the registry's laws: what people ordered, and what must never be seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from hypothesis.stateful import RuleBasedStateMachine, invariant

from clustermgr.lib.errors import DomainError
from nodes.models import BackendNode, ClusterEvent, NodeModel
from tests.factories import NOW, make_token

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


class RegistryWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # A transaction for each story: forty of them in one would drown PostgreSQL in savepoints.
        self.story = transaction.atomic()
        self.story.__enter__()
        self.now = NOW
        self.token, self.foreign = make_token(), make_token()
        self.orders: dict[str, Orders] = {}
        self.pictures: dict[str, dict[str, Any]] = {}
        self.heard = 0  # id of the newest event already looked at
        self.actors: set[str] = set()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.story.__exit__(None, None, None)

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
