from datetime import timedelta
from typing import Any

import pytest

from backendops.models import NodeBackend, NodeInventory
from backendops.services import inventory
from clustermgr.lib.errors import BusError, NodeRefused, NodeUnreachable
from nodes.models import BackendNode
from nodes.states import Liveness
from nodes.wire import InstalledBackend
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=5)


class Told:
    """A gateway that was told what to answer."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def list_backends_of(self, node_ids: Any) -> dict[Any, Any]:
        nodes = BackendNode.objects.filter(pk__in=node_ids)
        return {node.pk: self.answers[node.name] for node in nodes}


def backend(name: str, version: str = "1") -> InstalledBackend:
    return InstalledBackend(name=name, is_system=False, is_meta=False, version=version)


def ask(now: Any = NOW, **answers: Any) -> None:
    ids = [node.pk for node in BackendNode.objects.all()]
    inventory.ask(ids, gateway=Told(**answers), now=now)  # type: ignore[arg-type]


def rows() -> set[tuple[str, str, str]]:
    return set(NodeBackend.objects.values_list("node__name", "name", "version"))


def test_rows_become_what_nodes_tell() -> None:
    make_node("a")
    make_node("b")
    ask(a=(backend("x"), backend("y")), b=())
    assert rows() == {("a", "x", "1"), ("a", "y", "1")}
    ask(LATER, a=(backend("x", "2"),), b=(backend("z"),))
    assert rows() == {("a", "x", "2"), ("b", "z", "1")}
    assert NodeInventory.objects.filter(observed_at=LATER).count() == 2


def test_an_answer_from_before_changes_nothing() -> None:
    make_node("a")
    ask(LATER, a=(backend("x"),))
    ask(NOW, a=())
    assert rows() == {("a", "x", "1")}


@pytest.mark.parametrize(
    ("why", "liveness"),
    [
        (NodeUnreachable("nobody"), Liveness.UNHEALTHY),
        (BusError("cut off"), Liveness.HEALTHY),
        (NodeRefused("cannot read"), Liveness.HEALTHY),
    ],
)
def test_silence_keeps_the_rows_and_is_remembered(why: Exception, liveness: Liveness) -> None:
    long_ago = NOW - timedelta(days=1)
    node = make_node("a", approved_at=long_ago, liveness_changed_at=long_ago)
    ask(a=(backend("x"),))
    ask(LATER, a=why)
    node.refresh_from_db()
    assert rows() == {("a", "x", "1")}
    told = NodeInventory.objects.get()
    assert (told.observed_at, told.asked_at, told.error) == (NOW, LATER, str(why))
    assert node.liveness == liveness


def test_a_node_that_never_listened_is_not_taken_away_again_and_again() -> None:
    node = make_node("a")
    for minute in range(5):
        ask(NOW + timedelta(minutes=minute), a=NodeUnreachable("nobody"))
    node.refresh_from_db()
    assert node.liveness == Liveness.HEALTHY


def test_silence_is_news_once_until_the_node_has_told_something_again() -> None:
    long_ago = NOW - timedelta(days=1)
    node = make_node("a", approved_at=long_ago, liveness_changed_at=long_ago)
    ask(a=())
    ask(LATER, a=NodeUnreachable("nobody"))
    # its heartbeat brings it back
    BackendNode.objects.update(liveness=Liveness.HEALTHY, liveness_changed_at=LATER)
    ask(LATER + timedelta(minutes=5), a=NodeUnreachable("nobody"))
    node.refresh_from_db()
    assert node.liveness == Liveness.HEALTHY


def test_a_thousand_nodes_without_news_cost_as_many_statements_as_ten(
    django_assert_max_num_queries: Any,
) -> None:
    names = [f"n{number}" for number in range(100)]
    for name in names:
        make_node(name)
    same = {name: (backend("x"),) for name in names}
    ask(**same)
    ids = [node.pk for node in BackendNode.objects.all()]
    with django_assert_max_num_queries(7):
        inventory.ask(ids, gateway=Told(**same), now=LATER)  # type: ignore[arg-type]
    assert NodeBackend.objects.filter(observed_at=LATER).count() == 100
