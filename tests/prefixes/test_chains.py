import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.prefixes.chains import DEPTH, WINDOW, chain_of
from tests.prefixes import independent

long_texts = st.builds(lambda piece, times: piece * times, st.text(min_size=1), st.integers(1, 600))
texts = st.text() | long_texts
FIXED = ["1eb4b29b90eaedb2", "62f07af93d833535", "b74520126d81ce3b"]
names = st.text(min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("data", "published"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_our_second_opinion_is_xxhash(data: bytes, published: int) -> None:
    assert independent.xxh64(data) == published


def test_a_chain_is_what_it_was_and_what_localai_computes() -> None:
    text = "You are a helpful assistant. " * 20  # 580 bytes: two windows and a short one
    assert chain_of(text, model="llama-3") == independent.chain(text, "llama-3")
    assert [f"{link:016x}" for link in chain_of(text, model="llama-3")] == FIXED


@given(texts, names)
def test_every_chain_agrees_with_the_description(text: str, model: str) -> None:
    assert chain_of(text, model=model) == independent.chain(text, model)


@given(texts, st.text(min_size=1), names)
def test_a_longer_prompt_shares_every_full_window(text: str, more: str, model: str) -> None:
    ours, longer = chain_of(text, model=model), chain_of(text + more, model=model)
    full = min(len(text.encode()) // WINDOW, DEPTH)
    assert ours[:full] == longer[:full]
    assert len(longer) >= len(ours)
    if full < len(ours):  # the short one at the end became another
        assert ours[full] != longer[full]


@given(texts, names, names)
def test_no_two_models_share_a_link(text: str, one: str, another: str) -> None:
    if one != another:
        assert not set(chain_of(text, model=one)) & set(chain_of(text, model=another))


def test_only_the_head_of_a_long_prompt_counts() -> None:
    head = "x" * WINDOW * DEPTH
    assert len(chain_of(head, model="m")) == DEPTH
    assert chain_of(head + "tail", model="m") == chain_of(head, model="m")


def test_nothing_has_no_chain() -> None:
    assert chain_of("", model="m") == ()
