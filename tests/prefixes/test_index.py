from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import uuid4

from scheduling.prefixes.chains import DEPTH, chain_of
from scheduling.prefixes.index import AT_ONCE, IN_PASSING, Limits, Match, PrefixIndex, Seat
from tests.prefixes.naive import links, seat

A, B = seat("a"), seat("b")
NOW = 1000.0
FAR = 10**12  # from the links of short texts
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
    assert (len(known), known.weights("m", now=NOW + 301)) == (0, {})


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    known = index()
    known.record("m", links("x"), A, now=NOW)
    assert known.match("m", links("x"), now=NOW - 3600) == Match(A, 1)
    known.record("m", links("y"), A, now=NOW - 3600)
    assert known.match("m", links("y"), now=NOW + 299) == Match(A, 1)


def test_forgetting_what_was_never_known_makes_nothing() -> None:
    known = index()
    known.forget("m", A.node, 0)
    assert known.weights("m", now=NOW) == {}
    assert known.match("m", links("x"), now=NOW) is None
    assert not known.sweep(now=NOW)


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


def crowded(prompts: int) -> PrefixIndex:
    """Prompts that share nothing, as deep as they get, all seen by one replica."""
    known = PrefixIndex(Limits())
    for number in range(prompts):
        first = FAR + number * DEPTH
        known.record("m", tuple(range(first, first + DEPTH)), A, now=NOW)
    return known


def turns_of(known: PrefixIndex, *, now: float) -> list[int]:
    """How many links each turn of a sweep drops."""
    sizes, more = [len(known)], True
    while more:
        more = known.sweep(now=now)
        sizes.append(len(known))
    return [before - after for before, after in pairwise(sizes)]


def test_a_sweep_drops_no_more_links_at_once_than_a_pick_can_wait_for() -> None:
    turns = turns_of(crowded(200), now=NOW + 301)
    assert sum(turns) == 200 * DEPTH
    assert max(turns) <= AT_ONCE + IN_PASSING + 2 * DEPTH


def test_a_replica_that_is_forgotten_is_unknown_at_once_and_dropped_in_turns() -> None:
    known = crowded(200)
    known.record("m", links("xyz"), B, now=NOW)
    known.forget("m", A.node)
    assert len(known) > 100 * DEPTH
    assert known.match("m", tuple(range(FAR, FAR + DEPTH)), now=NOW) is None
    assert set(known.weights("m", now=NOW)) == {B}
    assert known.look("m", links("xyz"), now=NOW) == (Match(B, 3), (B.id,))
    assert max(turns_of(known, now=NOW)) <= AT_ONCE + DEPTH
    assert len(known) == 3


def test_what_is_left_of_the_forgotten_goes_before_what_is_known() -> None:
    known = PrefixIndex(Limits(entries=4))
    known.record("m", links("x"), B, now=NOW)
    known.record("m", links("abc"), A, now=NOW + 1)
    known.forget("m", A.node)
    known.record("m", links("yz"), B, now=NOW + 2)
    assert known.match("m", links("x"), now=NOW + 2) == Match(B, 1)
    assert known.match("m", links("yz"), now=NOW + 2) == Match(B, 2)


def test_a_forgotten_replica_that_comes_back_has_seen_only_what_it_sees_then() -> None:
    known = index()
    known.record("m", links("xyz"), A, now=NOW)
    known.forget("m", A.node)
    assert known.record("m", links("x"), A, now=NOW)
    assert known.match("m", links("xyz"), now=NOW) == Match(A, 1)
    turns_of(known, now=NOW)
    assert known.match("m", links("xyz"), now=NOW) == Match(A, 1)
    assert len(known) == 1


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
                known.forget("m", seats[number % 4].node)
                known.sweep(now=now)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert 0 < len(known) <= 500
    for one in seats:
        known.forget("m", one.node)
    assert known.weights("m", now=NOW + 10) == {}
    while known.sweep(now=NOW + 10):
        pass
    assert len(known) == 0
