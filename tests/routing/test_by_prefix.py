from collections.abc import Iterator

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import default_bus
from nodes.models import NodeModel
from nodes.services import replicas
from scheduling.models import RouteTally
from scheduling.services.prefixing import Prefixes
from scheduling.services.routing import Router
from scheduling.states import RoutePolicy
from tests.factories import NOW, make_node, make_replica, make_rule
from tests.routing.test_leases import ask

pytestmark = pytest.mark.django_db

PROMPT = tuple(range(1, 9))
OTHER = tuple(range(101, 109))


@pytest.fixture
def router(db: None) -> Iterator[Router]:
    prefixes = Prefixes(ClusterSettings(), default_bus())
    yield Router(clock=lambda: NOW, prefixes=prefixes)
    prefixes.tallies.flush()  # into what is rolled back, and not seconds later into another test


def route(router: Router, chain: tuple[int, ...] = PROMPT, **more: str) -> str:
    """The node that a request goes to; it is over at once."""
    lease = router.acquire(ask(chain=chain, **more))
    assert lease is not None
    router.release(lease.id)
    return lease.node_name


@pytest.fixture(autouse=True)
def fleet() -> None:
    for name in "abcd":
        make_replica(make_node(name))


def test_the_same_prompt_goes_where_it_went(router: Router) -> None:
    assert len({route(router) for _ in range(10)}) == 1


def test_another_prompt_goes_to_another_replica(router: Router) -> None:
    assert route(router) != route(router, OTHER)


def test_a_rule_can_turn_it_off(router: Router) -> None:
    make_rule(route_policy=RoutePolicy.ROUND_ROBIN)
    assert len({route(router) for _ in range(2)}) == 1  # the clock stands: ties go by id
    assert router._prefixes.index.look("llama", PROMPT, now=NOW.timestamp())[0] is None


def test_a_shadow_counts_and_decides_nothing(router: Router) -> None:
    make_rule(route_policy=RoutePolicy.PREFIX_SHADOW)
    first = route(router)
    NodeModel.objects.filter(node__name=first).update(in_flight=1)
    assert route(router) != first
    router._prefixes.tallies.flush()
    assert RouteTally.objects.get(model_name="llama").shadow


def test_two_replicas_of_one_node_are_told_apart(router: Router) -> None:
    NodeModel.objects.exclude(node__name="a").delete()
    make_replica(NodeModel.objects.get().node, index=1)
    lease, other = router.acquire(ask(chain=PROMPT)), router.acquire(ask(chain=OTHER))
    assert lease is not None
    assert other is not None
    assert lease.replica != other.replica
    for one in (lease, other):
        router.release(one.id)
    again = router.acquire(ask(chain=PROMPT))
    assert again is not None
    assert again.replica == lease.replica


def test_a_replica_that_is_gone_is_preferred_no_more(router: Router) -> None:
    first = route(router)
    replicas.remove(NodeModel.objects.filter(node__name=first), reason="tests")
    assert route(router) != first


def test_a_session_is_kept_whatever_it_asks(router: Router) -> None:
    assert len({route(router, (turn,), session="anna") for turn in range(1, 20)}) == 1


def test_each_of_many_at_once_is_told_how_busy_the_least_was_when_it_was_picked(
    router: Router,
) -> None:
    NodeModel.objects.exclude(node__name__in="ab").delete()
    first = router.acquire(ask(chain=PROMPT))
    assert first is not None
    together = [lease for lease in router.take([ask(chain=PROMPT)] * 4) if lease]
    assert [(lease.load, lease.least) for lease in together] == [(1, 0), (0, 0), (2, 1), (1, 1)]
