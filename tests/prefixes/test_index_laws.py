from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.prefixes.index import Limits, PrefixIndex, Seat
from tests.prefixes.naive import Tree, links, seat

LIMITS = Limits(ttl=300.0, half_life=120.0)
MODELS = ("llama", "qwen")
NODES = ("a", "b")
START = 1_900_000_000.0

texts = st.text("xyz", min_size=1, max_size=6)
models = st.sampled_from(MODELS)
seats = st.builds(
    seat, st.sampled_from(NODES), st.integers(0, 1), life=st.sampled_from([0, 0, 0, 1])
)
passed = st.sampled_from([0.0, 0.0, 0.5, 40.0, 101.0, 150.0, 300.0, 301.0, -5.0])
steps = st.one_of(
    st.tuples(st.sampled_from(["record", "record", "adopt"]), models, texts, seats),
    st.tuples(st.just("forget"), models, seats, st.booleans()),
    st.tuples(st.just("wait"), passed),
)
stories = st.lists(steps, max_size=40)


class World:
    """The index and the tree, told the same."""

    def __init__(self, limits: Limits) -> None:
        self.ours, self.theirs = PrefixIndex(limits), Tree(limits)
        self.now = START
        self.wait(0.0)

    def do(self, step: tuple[Any, ...]) -> None:
        verb, *told = step
        getattr(self, verb)(*told)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.theirs.advance(self.now)
        self.ours.match("nobody", (), now=self.now)  # both have seen how late it is

    def record(self, model: str, text: str, by: Seat) -> None:
        tell = self.ours.record(model, links(text), by, now=self.now)
        assert tell == self.theirs.record(model, links(text), by)

    def adopt(self, model: str, text: str, by: Seat) -> None:
        self.ours.adopt(model, links(text), by, now=self.now)
        self.theirs.record(model, links(text), by, heard=True)

    def forget(self, model: str, by: Seat, whole: bool) -> None:
        self.ours.forget(model, by.node, None if whole else by.slot)
        self.theirs.keep(
            lambda m, seen: (
                m != model or seen.seat.node != by.node or (not whole and seen.seat[1:] != by[1:])
            )
        )

    def sweep(self) -> None:
        while self.ours.sweep(now=self.now):
            pass


@given(stories, models, texts)
def test_the_longest_match_is_the_trees(story: list[Any], model: str, text: str) -> None:
    world = World(LIMITS)
    for step in story:
        world.do(step)
        found = world.ours.match(model, links(text), now=world.now)
        assert found == world.theirs.match(model, links(text))


@given(stories)
def test_once_swept_it_holds_what_the_tree_holds_and_no_empty_one(story: list[Any]) -> None:
    world = World(LIMITS)
    for step in story:
        world.do(step)
        world.sweep()
        assert len(world.ours) == len(world.theirs)
        known = {model for model in MODELS if world.ours.weights(model, now=world.now)}
        assert known == world.theirs.models.keys()


@given(stories)
def test_weights_are_the_trees_to_nine_digits(story: list[Any]) -> None:
    world = World(LIMITS)
    for step in story:
        world.do(step)
    world.sweep()
    for model in MODELS:
        ours = world.ours.weights(model, now=world.now)
        assert ours == pytest.approx(world.theirs.weights(model), rel=1e-9)
        _, cold = world.ours.look(model, (), now=world.now)
        # Equal ones differ in the last digit at most: then either order is right
        by_id = {one.id: weight for one, weight in ours.items()}
        assert [by_id[one] for one in cold] == pytest.approx(sorted(ours.values()))


@given(stories, texts, st.integers(1, 12))
def test_a_full_index_forgets_the_oldest_and_never_lies(
    story: list[Any], text: str, most: int
) -> None:
    world = World(Limits(entries=most))
    for verb, *told in story:
        if verb == "record":
            model, prompt, by = told
            world.ours.record(model, links(prompt), by, now=world.now)
            world.theirs.record(model, links(prompt), by)
        elif verb == "wait":
            world.wait(*told)
        assert len(world.ours) <= most
        for model in MODELS:
            found = world.ours.match(model, links(text), now=world.now)
            if found is None:
                continue
            # What is left is what the tree knows there; only deeper ones may be gone
            known = world.theirs.models[model]
            assert known[links(text)[: found.depth]].seat == found.seat
            shallower = range(1, found.depth)
            assert all(
                world.ours.match(model, links(text)[:depth], now=world.now) for depth in shallower
            )


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), unique=True, max_size=5), seats)))
def test_chains_that_are_none_break_nothing(told: list[tuple[list[int], Seat]]) -> None:
    index, known = PrefixIndex(LIMITS), dict[int, Seat]()
    for number, (chain, by) in enumerate(told):
        gone = {link for link, one in known.items() if one[1:] == by[1:] and one.id != by.id}
        known = {link: one for link, one in known.items() if not chain or link not in gone}
        index.adopt("m", tuple(chain), by, now=START + number / 100)
        known |= dict.fromkeys(chain, by)
        while index.sweep(now=START + number / 100):
            pass
        assert len(index) == len(known)
        for link, owner in known.items():
            match = index.match("m", (link,), now=START + number / 100)
            assert match is not None
            assert match.seat == owner
    while index.sweep(now=START + len(told) / 100 + LIMITS.ttl + 1):
        pass
    assert len(index) == 0


def test_weights_stay_right_when_their_scale_is_set_back() -> None:
    world, texts_, seats_ = World(LIMITS), ("x", "xy", "xz", "y"), (seat("a"), seat("b", 1))
    for turn in range(400):  # 333 half-lives, never empty
        world.record("llama", texts_[turn % 4], seats_[turn % 3 == 0])
        world.wait(100.0)
        world.sweep()
        ours = world.ours.weights("llama", now=world.now)
        assert ours == pytest.approx(world.theirs.weights("llama"), rel=1e-9)
