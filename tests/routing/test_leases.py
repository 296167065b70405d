from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import DjangoAssertNumQueries

from nodes.models import NodeModel
from nodes.states import Liveness, ReplicaState
from scheduling.models import RouteLease
from scheduling.routing.asks import Ask, How, Lease
from scheduling.services import leasing
from scheduling.services.leasing import Terms, Wanted
from tests.factories import GIB, NOW, make_node, make_replica

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
LATER = NOW + MINUTE


def ask(**changes: Any) -> Ask:
    return Ask(**{"model": "llama", "holder": "tests", "ttl": MINUTE, **changes})


def tried(count: int = 1, terms: Terms | None = None, **changes: Any) -> list[Lease | None]:
    now = changes.pop("now", NOW)
    wanted = [Wanted(ask=ask(**changes)) for _ in range(count)]
    return leasing.take(wanted, terms or Terms(), now=now)


def take(count: int = 1, terms: Terms | None = None, **changes: Any) -> list[Lease]:
    return granted(tried(count, terms, **changes))


def granted(leases: list[Lease | None]) -> list[Lease]:
    assert None not in leases
    return [lease for lease in leases if lease]


def counts() -> list[int]:
    return list(NodeModel.objects.order_by("node__name").values_list("in_flight", flat=True))


def test_a_lease_is_counted_on_its_replica_until_it_is_released() -> None:
    replica = make_replica(make_node(), config_revision="r1")
    (lease,) = take()
    assert (lease.replica, lease.address, lease.revision) == (replica.pk, replica.address, "r1")
    assert counts() == [1]
    assert leasing.release([lease.id]) == {lease.id}
    assert counts() == [0]


def test_releasing_twice_changes_nothing() -> None:
    make_replica(make_node())
    first, second = take(2)
    leasing.release([first.id])
    assert leasing.release([first.id, uuid4()]) == set()
    assert counts() == [1]
    assert leasing.release([first.id, second.id]) == {second.id}
    assert counts() == [0]


def test_the_least_busy_serves_then_who_rested_longest_then_the_largest() -> None:
    for name, changes, vram in (
        ("a", {"last_used": NOW}, GIB),
        ("b", {"last_used": NOW - MINUTE}, GIB),
        ("c", {"last_used": NOW - MINUTE}, 2 * GIB),
        ("d", {"last_used": None}, GIB),
    ):
        make_replica(make_node(name, available_vram=vram), **changes)
    order = [take(now=NOW + n * MINUTE)[0].node_name for n in range(1, 9)]
    assert order == ["d", "c", "b", "a"] * 2


def test_many_at_once_are_spread_as_if_they_had_come_one_by_one() -> None:
    for name in "abc":
        make_replica(make_node(name))
    leases = take(300)
    assert counts() == [100, 100, 100]
    assert len({lease.id for lease in leases}) == RouteLease.objects.count() == 300


@pytest.mark.parametrize(
    ("of_node", "of_replica"),
    [
        ({"approved_at": None, "approved_by": ""}, {}),
        ({"retired_at": NOW}, {}),
        ({"liveness": Liveness.OFFLINE}, {}),
        ({"liveness": Liveness.UNHEALTHY}, {}),
        ({}, {"state": ReplicaState.LOADING}),
        ({}, {"state": ReplicaState.UNLOADING}),
        ({}, {"suspect_since": NOW}),
        ({}, {"outdated_at": NOW}),
        ({}, {"model_name": "other"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 3])
def test_who_must_not_serve_gets_nothing(
    of_node: dict[str, Any], of_replica: dict[str, Any], count: int
) -> None:
    make_replica(make_node(**of_node), **of_replica)
    assert tried(count) == [None] * count
    assert not NodeModel.objects.serving().filter(model_name="llama").exists()


def test_a_node_that_the_rule_does_not_mean_does_not_serve() -> None:
    barred = make_node("a")
    make_replica(barred)
    make_replica(make_node("b"))
    for count in (1, 2):
        leases = take(count, Terms(barred=(barred.pk,)))
        assert {lease.node_name for lease in leases} == {"b"}


def test_a_callers_revision_is_the_only_one_it_gets() -> None:
    make_replica(make_node(), config_revision="r2")
    assert tried(revision="r1") == [None]
    assert take(revision="r2")[0].revision == "r2"


def test_an_ejected_replica_serves_only_when_nobody_else_can() -> None:
    make_replica(make_node("a"), ejected_until=NOW + MINUTE)
    make_replica(make_node("b"))
    assert {lease.node_name for lease in take(6)} == {"b"}
    assert take()[0].node_name == "b"
    NodeModel.objects.filter(node__name="b").update(ejected_until=NOW + MINUTE)
    assert take()[0].node_name == "a"
    NodeModel.objects.filter(node__name="a").update(ejected_until=NOW)
    assert take(now=NOW)[0].node_name == "a"


def test_a_replica_that_just_failed_somebody_is_not_given_to_him_again() -> None:
    bad = make_replica(make_node("a"))
    assert tried(excluded=frozenset({bad.pk})) == [None]
    make_replica(make_node("b"))
    assert {lease.node_name for lease in take(4, excluded=frozenset({bad.pk}))} == {"b"}


def test_a_known_prefix_goes_where_it_is_known_unless_that_one_is_too_busy() -> None:
    hot, other = (make_replica(make_node(name)) for name in "ab")
    wanted = [Wanted(ask=ask(), hot=hot.pk, by_prefix=True) for _ in range(4)]
    leases = granted(leasing.take(wanted, Terms(), now=NOW))
    # at most 1 while the other has none, at most 2 while it has one
    assert [lease.replica for lease in leases] == [hot.pk, hot.pk, other.pk, hot.pk]
    assert [lease.missed for lease in leases] == [False, False, True, False]


def test_an_unknown_prefix_goes_to_the_emptiest_cache() -> None:
    full, fuller, empty = (make_replica(make_node(name)) for name in "abc")
    terms = Terms(cold=(full.pk, fuller.pk))
    wanted = [Wanted(ask=ask(), by_prefix=True)]
    assert granted(leasing.take(wanted, terms, now=NOW))[0].replica == empty.pk


def test_a_session_stays_with_its_replica_while_others_come_and_go() -> None:
    for name in "abcd":
        make_replica(make_node(name))
    (first,) = take(session="anna")
    leasing.release([first.id])
    for name in "efg":
        make_replica(make_node(name))
    NodeModel.objects.exclude(pk=first.replica).filter(node__name__in="abcd")[0].delete()
    (again,) = take(session="anna")
    if again.replica != first.replica:  # a newcomer may take a session over, nobody else
        assert again.node_name in "efg"
    assert again.how is How.SESSION


def test_expired_leases_are_swept_and_renewed_ones_are_not() -> None:
    make_replica(make_node())
    gone, kept = take(2)
    leasing.renew([kept.id], until=LATER + MINUTE)
    assert leasing.sweep(now=LATER) == 1
    assert counts() == [1]
    assert leasing.release([gone.id, kept.id]) == {kept.id}


def test_a_renewal_never_shortens_and_says_who_is_gone() -> None:
    make_replica(make_node())
    (lease,) = take()
    assert leasing.renew([lease.id, uuid4()], until=NOW) == {lease.id: LATER}


def test_a_removed_replica_takes_its_leases_along() -> None:
    replica = make_replica(make_node())
    (lease,) = take()
    replica.delete()
    assert leasing.release([lease.id]) == set()


def test_a_wrong_count_is_set_right() -> None:
    make_replica(make_node("a"), in_flight=7)
    make_replica(make_node("b"))
    take(3, Terms())
    assert leasing.recount() == 1
    assert counts() == [0, 3]
    assert leasing.recount() == 0


def test_a_pick_and_a_release_are_one_statement_each(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    make_replica(make_node())
    with django_assert_num_queries(1):
        leases = take(8)
    with django_assert_num_queries(1):
        leasing.release([lease.id for lease in leases])
