import math
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from worker.reference import language
from worker.reference.language import DIMENSIONS, Chain, pieces

CORPUS = "the cat sat on the mat. the cat ran."
TEXT = st.text(max_size=60)
STOPS = st.lists(st.text("ab .", min_size=1, max_size=3), max_size=3)


@given(TEXT)
def test_an_embedding_has_length_one_or_says_nothing(text: str) -> None:
    vector = language.embed(text)
    length = math.sqrt(sum(value * value for value in vector))
    assert len(vector) == DIMENSIONS
    assert math.isclose(length, 1, rel_tol=1e-9) or vector == [0.0] * DIMENSIONS


def test_texts_about_the_same_are_nearer_than_texts_about_something_else() -> None:
    def likeness(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(language.embed(one), language.embed(other), strict=True))

    question = "which worker runs the model"
    assert likeness(question, "the worker that runs models") > likeness(question, "apple pie")
    assert math.isclose(likeness(question, question), 1)


def test_the_numbers_are_the_same_on_every_machine() -> None:
    assert [language.token_id(token) for token in language.tokens("Hello, World!")] == [
        31798397,
        1388207151,
        668373775,
        722676385,
    ]
    assert " ".join(islice(Chain(CORPUS).walk("the", seed=0, temperature=0), 6)) == (
        "cat ran . the cat ran"
    )


@given(TEXT, st.integers(-(2**31), 2**31 - 1))
def test_the_same_seed_says_the_same_and_only_known_words(prompt: str, seed: int) -> None:
    chain = Chain(CORPUS)
    once, again = (list(islice(chain.walk(prompt, seed=seed, temperature=1), 20)) for _ in range(2))
    assert once == again
    assert set(once) <= set(language.tokens(CORPUS))


def test_different_seeds_say_different_things() -> None:
    chain = Chain(CORPUS)
    said = {" ".join(islice(chain.walk("the", seed=seed, temperature=1), 10)) for seed in range(20)}
    assert len(said) > 3


@given(st.lists(st.sampled_from(["a", "b", ".", "ab"]), max_size=12), STOPS, st.integers(0, 15))
def test_pieces_put_together_are_the_text_up_to_the_first_stop(
    words: list[str], stops: list[str], limit: int
) -> None:
    whole = "".join(pieces(iter(words), limit=limit, stops=()))
    ends = [whole.find(stop) for stop in stops if stop in whole]
    streamed = "".join(pieces(iter(words), limit=limit, stops=stops))
    assert streamed == (whole[: min(ends)] if ends else whole)


def test_nothing_to_learn_from_is_nothing_to_say() -> None:
    assert list(Chain("").walk("hello", seed=1, temperature=0)) == []
