from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from worker.machine import Refused
from worker.processes import Ports
from worker.processes.ports import QUARANTINE, RESERVATION

START = timedelta()
FIRST, LAST = 50051, 50054
RESTED = START + QUARANTINE
KEYS = st.sampled_from(["a#0", "a#1", "b#0", "c#0", "d#0", "e#0"])


def test_ports_are_handed_out_from_the_bottom() -> None:
    ports = Ports(FIRST, LAST)
    assert [ports.take(key, now=START) for key in "abcd"] == [50051, 50052, 50053, 50054]


def test_a_full_range_is_refused_with_its_bounds() -> None:
    ports = Ports(FIRST, FIRST)
    ports.take("a#0", now=START)
    with pytest.raises(Refused, match="no free gRPC port in the range 50051-50051"):
        ports.take("b#0", now=START)


def test_a_key_gets_its_old_port_back() -> None:
    ports = Ports(FIRST, LAST)
    ports.take("a#0", now=START)
    old = ports.take("b#0", now=START)
    ports.release(old, now=START)
    assert ports.take("b#0", now=RESTED) == old


def test_a_released_port_rests_even_for_its_own_key() -> None:
    ports = Ports(FIRST, LAST)
    old = ports.take("a#0", now=START)
    ports.release(old, now=START)
    assert ports.take("a#0", now=RESTED - timedelta(milliseconds=1)) != old


def test_another_key_leaves_a_reserved_port_alone_while_there_are_others() -> None:
    ports = Ports(FIRST, LAST)
    old = ports.take("a#0", now=START)
    ports.release(old, now=START)
    assert ports.take("b#0", now=RESTED) != old


def test_a_reservation_ends_after_five_minutes() -> None:
    ports = Ports(FIRST, LAST)
    old = ports.take("a#0", now=START)
    ports.release(old, now=START)
    assert ports.take("b#0", now=START + RESERVATION) == old


def test_a_reserved_port_is_taken_when_nothing_else_is_left() -> None:
    ports = Ports(FIRST, FIRST)
    ports.release(ports.take("a#0", now=START), now=START)
    assert ports.take("b#0", now=RESTED) == FIRST


def test_a_strangers_port_rests_and_belongs_to_nobody_afterwards() -> None:
    ports = Ports(FIRST, LAST)
    strange = ports.take("a#0", now=START)
    ports.avoid(strange, now=START)
    assert ports.take("a#0", now=START) != strange
    assert ports.take("b#0", now=RESTED) == strange


class AnyLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ports = Ports(FIRST, LAST)
        self.now = START
        self.taken: dict[int, str] = {}
        self.released_at: dict[int, timedelta] = {}

    @rule(key=KEYS)
    def take(self, key: str) -> None:
        try:
            port = self.ports.take(key, now=self.now)
        except Refused:
            rested = [p for p, at in self.released_at.items() if self.now - at >= QUARANTINE]
            used = self.taken.keys() | self.released_at.keys()
            assert not rested
            assert len(used) == LAST - FIRST + 1
            return
        assert FIRST <= port <= LAST
        assert port not in self.taken
        assert self.now - self.released_at.pop(port, START - QUARANTINE) >= QUARANTINE
        self.taken[port] = key

    @rule(data=st.data(), ours=st.booleans())
    def give_back(self, data: st.DataObject, ours: bool) -> None:
        if self.taken:
            port = data.draw(st.sampled_from(sorted(self.taken)))
            (self.ports.release if ours else self.ports.avoid)(port, now=self.now)
            del self.taken[port]
            self.released_at[port] = self.now

    @rule(seconds=st.integers(0, 400))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def nothing_is_given_twice(self) -> None:
        assert len(self.taken) <= LAST - FIRST + 1


TestAnyLife = AnyLife.TestCase


@given(st.lists(KEYS, min_size=1, max_size=4, unique=True))
def test_keys_that_come_back_after_a_restart_of_all_find_their_ports(keys: list[str]) -> None:
    ports = Ports(FIRST, LAST)
    before = {key: ports.take(key, now=START) for key in keys}
    for port in before.values():
        ports.release(port, now=START)
    assert {key: ports.take(key, now=RESTED) for key in reversed(keys)} == before
