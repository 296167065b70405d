import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import UNSAFE, checked, readable, sentence


@given(st.text(st.characters()), st.integers(8, 100))
def test_words_are_made_fit_to_be_shown_and_stored(text: str, limit: int) -> None:
    fit = readable(text, limit=limit)
    assert len(fit) <= limit
    assert not UNSAFE.search(fit.replace("\n", ""))
    fit.encode()


def test_lines_stay_lines() -> None:
    assert readable(" failed:\r\n\tno GPU\x1b[0m \n", limit=99) == "failed:\n no GPU [0m"


def test_too_many_words_lose_their_middle() -> None:
    assert readable("head" + "x" * 99 + "tail", limit=15) == "headx ... xtail"


@given(st.text(), st.integers(1, 20))
def test_what_is_checked_is_never_changed_and_never_too_long(text: str, limit: int) -> None:
    try:
        assert checked(text, field="name", limit=limit) == text
    except InvalidInput:
        assert len(text.encode()) > limit or UNSAFE.search(text)
    else:
        assert len(text.encode()) <= limit
        assert not UNSAFE.search(text)


@pytest.mark.parametrize("text", ["\x7f", "\x1f", "\n", "\u2028", "\ud800"])
def test_the_short_way_lets_nothing_through(text: str) -> None:
    with pytest.raises(InvalidInput):
        checked(text, field="name", limit=9)


def test_a_traceback_becomes_what_failed_and_its_last_line() -> None:
    words = (
        "backend x exited with code 1; its last words:\n"
        "Traceback (most recent call last):\n"
        '  File "run.py", line 3\n'
        "ImportError: no such accelerator\n"
        "    at exit\n"
    )
    told = "backend x exited with code 1; its last words: ImportError: no such accelerator"
    assert sentence(words, limit=99) == told


@given(st.text(st.characters()), st.integers(8, 100))
def test_a_sentence_is_one_line_and_short_enough(text: str, limit: int) -> None:
    told = sentence(text, limit=limit)
    assert "\n" not in told
    assert len(told) <= limit


def test_words_on_one_line_stay_as_they_are() -> None:
    assert sentence("disk full: 3 MB left", limit=99) == "disk full: 3 MB left"
