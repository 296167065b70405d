import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from nodes.wire import PrefixInvalidated, PrefixObserved

GOOD: dict[str, Any] = {"model": "m", "chain": [1, 2], "node_id": "n", "replica": 0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"chain": None, "Chain": 7},
        {"chain": ["1"]},
        {"chain": [-1]},
        {"chain": [2**64]},
        {"chain": [1, 1]},
        {"chain": [True]},
        {"replica": -1},
        {"replica": 2**31},
        {"model": "m" * 300},
        {"node_id": 7},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        PrefixObserved.decode(json.dumps({**GOOD, **wrong}).encode())


def test_a_longer_chain_is_cut_and_unknown_keys_do_not_matter() -> None:
    body = {**GOOD, "chain": list(range(100)), "Replica": 3, "more": "words"}
    said = PrefixObserved.decode(json.dumps(body).encode())
    assert said.chain == tuple(range(64))
    assert said.replica == 3


@given(
    st.binary() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_nonsense_is_refused_or_about_nobody_and_never_a_crash(payload: bytes) -> None:
    for kind in (PrefixObserved, PrefixInvalidated):
        with suppress(InvalidInput):
            assert kind.decode(payload).node_id == ""
