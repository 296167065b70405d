from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.prefixes.index import Limits, Match, PrefixIndex, Seat
from scheduling.prefixes.policies import ROUND_ROBIN, Policy
from scheduling.prefixes.selecting import Candidate, Wish, choose, wish_of
from scheduling.states import RoutePolicy
from tests.prefixes.naive import Tree, links, seat

A, B, C = sorted((seat("a"), seat("b"), seat("c")), key=lambda one: one.node)
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def busy(**numbers: int) -> list[Candidate]:
    names = {"a": A, "b": B, "c": C}
    return [Candidate(names[name], number) for name, number in numbers.items()]


def seat_of(candidates: Sequence[Candidate], wish: Wish | None) -> Seat | None:
    choice = choose(candidates, wish)
    return choice.seat if choice else None


def test_without_a_wish_the_idlest_and_longest_unused_comes_first() -> None:
    early, late = NOW - timedelta(minutes=1), NOW
    assert seat_of([Candidate(A, 1, early), Candidate(B, 0, late)], None) == B
    assert seat_of([Candidate(A, 0, late), Candidate(B, 0, early)], None) == B
    assert seat_of([Candidate(A, 0, early), Candidate(B, 0, None)], None) == B
    assert seat_of([Candidate(A, 0, late, 8), Candidate(B, 0, late, 16)], None) == B
    assert seat_of([Candidate(A), Candidate(B)], None) == min(A, B, key=lambda one: one.id)


def test_nobody_is_chosen_from_nobody() -> None:
    assert choose([], None) is None
    assert choose([], Wish(hot=A.id)) is None


def test_who_has_seen_the_prompt_gets_it_unless_much_busier() -> None:
    wish = Wish(hot=B.id, share=0.75)
    choice = choose(busy(a=0, b=1), wish)
    assert choice is not None
    assert (choice.seat, choice.why) == (B, "It has seen 75% of this prompt.")
    assert not choice.pressure
    choice = choose(busy(a=0, b=2), wish)
    assert choice is not None
    assert (choice.seat, choice.pressure) == (A, True)
    assert "too busy (2 in flight, the idlest 0)" in choice.why


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 2), (2, 4), (4, 6), (10, 12)])
def test_the_guard_allows_two_more_and_half_as_many_again(least: int, most: int) -> None:
    wish = Wish(hot=B.id)
    assert seat_of(busy(a=least, b=most), wish) == B
    assert seat_of(busy(a=least, b=most + 1), wish) == A


def test_a_replica_that_is_gone_is_no_pressure() -> None:
    choice = choose(busy(a=0, b=0), Wish(hot=C.id))
    assert choice is not None
    assert not choice.pressure


def test_a_new_prompt_goes_where_least_is_remembered() -> None:
    assert seat_of(busy(a=0, b=0, c=0), Wish(cold=(B.id, A.id))) == C
    assert seat_of(busy(a=0, b=0), Wish(cold=(B.id, A.id))) == B
    assert seat_of(busy(a=0, b=0, c=2), Wish(cold=(B.id, A.id))) == B


def test_a_share_too_small_is_no_preference() -> None:
    policy = Policy(min_match=0.5)
    assert wish_of(Match(A, 1), (A.id,), links("xyz"), policy).hot is None
    assert wish_of(Match(A, 2), (A.id,), links("xyz"), policy).hot == A.id
    assert wish_of(None, (), links("xyz"), policy) == Wish()


def test_a_rule_overrides_and_what_it_leaves_empty_is_inherited() -> None:
    policy = Policy()
    assert policy.settled() == policy
    assert policy.settled(route_policy="round_robin") == ROUND_ROBIN
    own = policy.settled(balance_abs_threshold=7, balance_rel_threshold=3.0, min_prefix_match=0.9)
    assert (own.balance_abs, own.balance_rel, own.min_match) == (7, 3.0, 0.9)
    shadow = policy.settled(route_policy="prefix_shadow")
    assert (shadow.watches, shadow.shadow, shadow.route) == (True, True, RoutePolicy.PREFIX_SHADOW)
    assert not ROUND_ROBIN.watches


every = [seat(node, slot) for node in "abc" for slot in (0, 1)]
texts = st.text("xy", min_size=1, max_size=5)
histories = st.lists(st.tuples(texts, st.sampled_from(every), st.sampled_from([0.0, 30.0, 100.0])))
loads = st.dictionaries(st.sampled_from(every), st.integers(0, 5))


@given(histories, loads, texts, st.integers(0, 3), st.sampled_from([1.0, 1.5, 2.0]))
def test_the_decision_is_the_specifications(
    history: list[tuple[str, Seat, float]], load: dict[Seat, int], text: str, abs_: int, rel: float
) -> None:
    ours, tree = PrefixIndex(Limits()), Tree(Limits())
    for prompt, by, passed in history:
        tree.advance(tree.now + passed)
        ours.record("m", links(prompt), by, now=tree.now)
        tree.record("m", links(prompt), by)
    while ours.sweep(now=tree.now):
        pass
    policy = Policy(balance_abs=abs_, balance_rel=rel)
    match, cold = ours.look("m", links(text), now=tree.now)
    wish = wish_of(match, cold, links(text), policy)
    candidates = [Candidate(one, number) for one, number in load.items()]
    choice = choose(candidates, wish)
    expected = specified(tree, load, text, policy)
    assert (choice.seat if choice else None) in expected


def specified(tree: Tree, load: dict[Seat, int], text: str, policy: Policy) -> list[Seat | None]:
    """Word for word; weights that are equal but for the last digit may change places."""
    if not load:
        return [None]
    m = min(load.values())
    eligible = [
        one
        for one, number in load.items()
        if number <= m + policy.balance_abs and number <= m * policy.balance_rel + 1
    ]
    hot = tree.match("m", links(text))
    if hot and hot.seat in eligible and hot.depth / len(text) >= policy.min_match:
        return [hot.seat]
    weights = {one: tree.weights("m").get(one, 0.0) for one in eligible}
    least = min(weights.values())
    ties = [one for one, weight in weights.items() if weight == pytest.approx(least, rel=1e-9)]
    known = [one for one in ties if weights[one]]
    return [*known] if known else [min(ties, key=lambda one: one[1:])]
