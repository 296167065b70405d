from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from scheduling.prefixes.chains import chain_of
from scheduling.prefixes.index import Limits, Match, PrefixIndex, Seat
from tests.prefixes.naive import links, seat

A, B = seat("a"), seat("b")
NOW = 1000.0
LIMITS = Limits(ttl=300.0, half_life=120.0, entries=1000)


def index() -> PrefixIndex:
    return PrefixIndex(LIMITS)


def test_who_records_last_owns_what_is_shared() -> None:
    known = index()
    known.record("m", links("xyz"), A, now=NOW)
    known.record("m", links("xyq"), B, now=NOW)
    assert known.match("m", links("xy"), now=NOW) == Match(B, 2)
    assert known.match("m", links("xyz"), now=NOW) == Match(A, 3)


def test_two_replicas_of_one_node_are_told_apart() -> None:
    known, other = index(), seat("a", 1)
    known.record("m", links("x"), A, now=NOW)
    known.record("m", links("y"), other, now=NOW)
    assert known.match("m", links("x"), now=NOW) == Match(A, 1)
    assert known.match("m", links("y"), now=NOW) == Match(other, 1)
    known.forget("m", other.node, other.slot)
    assert known.match("m", links("x"), now=NOW) == Match(A, 1)
    assert known.match("m", links("y"), now=NOW) is None


def test_it_expires_when_older_than_the_limit_and_not_before() -> None:
    known = index()
    known.record("m", links("x"), A, now=NOW)
    assert known.match("m", links("x"), now=NOW + 300.0)
    assert known.match("m", links("x"), now=NOW + 300.001) is None
    assert (len(known), known.models()) == (0, frozenset())


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    known = index()
    known.record("m", links("x"), A, now=NOW)
    assert known.match("m", links("x"), now=NOW - 3600) == Match(A, 1)
    known.record("m", links("y"), A, now=NOW - 3600)
    assert known.match("m", links("y"), now=NOW + 299) == Match(A, 1)


def test_forgetting_what_was_never_known_makes_nothing() -> None:
    known = index()
    assert known.forget("m", A.node, 0) == known.forget_node(A.node) == known.forget_model("m") == 0
    assert known.weights("m", now=NOW) == {}
    assert known.match("m", links("x"), now=NOW) is None
    assert known.models() == frozenset()


def test_a_hole_above_does_not_hide_what_is_below() -> None:
    known = index()
    known.record("m", links("xyz"), A, now=NOW)
    known.record("m", links("xy"), B, now=NOW)
    known.forget("m", B.node)
    assert known.match("m", links("xyz"), now=NOW) == Match(A, 3)
    assert known.match("m", links("xy"), now=NOW) is None


def test_another_process_in_the_same_slot_starts_with_nothing() -> None:
    known, reborn = index(), seat("a", life=1)
    known.record("m", links("xyz"), A, now=NOW)
    known.record("m", links("q"), reborn, now=NOW)
    assert known.match("m", links("xyz"), now=NOW) is None
    assert known.match("m", links("q"), now=NOW) == Match(reborn, 1)


def test_others_are_told_what_is_new_deeper_or_moved_and_again_after_a_third_of_its_life() -> None:
    known = index()
    assert known.record("m", links("xy"), A, now=NOW)
    assert not known.record("m", links("xy"), A, now=NOW + 100)
    assert not known.record("m", links("x"), A, now=NOW + 100)
    assert known.record("m", links("xyz"), A, now=NOW + 100)
    assert known.record("m", links("xyz"), B, now=NOW + 100)
    assert not known.record("m", links("xyz"), B, now=NOW + 200)
    assert known.record("m", links("xyz"), B, now=NOW + 200.1)
    known.adopt("m", links("xyz"), B, now=NOW + 290)  # somebody else told everybody
    assert not known.record("m", links("xyz"), B, now=NOW + 350)


def test_a_full_index_keeps_the_newest() -> None:
    known = PrefixIndex(Limits(entries=3))
    for number, text in enumerate("abcd"):
        known.record("m", links(text), A, now=NOW + number)
    assert [bool(known.match("m", links(one), now=NOW + 4)) for one in "abcd"] == [
        *(False, True, True, True)
    ]


def test_threads_may_do_everything_at_once() -> None:
    known = PrefixIndex(Limits(ttl=5.0, half_life=1.0, entries=500))
    seats = [Seat(uuid4(), uuid4(), number) for number in range(4)]
    chains = [chain_of(f"{n % 7}" * 300 + "tail" * n, model="m") for n in range(200)]

    def work(number: int) -> None:
        for turn, chain in enumerate(chains):
            now = NOW + turn / 20
            known.record("m", chain, seats[(number + turn) % 4], now=now)
            known.look("m", chain, now=now)
            if turn % 50 == number:
                known.forget_node(seats[number % 4].node)
                known.sweep(now=now)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert 0 < len(known) <= 500
    for one in seats:
        known.forget_node(one.node)
    assert len(known) == 0
    assert known.models() == frozenset()
