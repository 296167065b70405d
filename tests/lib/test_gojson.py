import pytest

from clustermgr.lib import gojson
from clustermgr.lib.errors import InvalidInput

BROKEN = [
    b"{",
    b"NaN",
    b'{"a": Infinity}',
    b"\xff",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b"9" * 5_000,
    b"[" * 100_000,
]


@pytest.mark.parametrize("raw", BROKEN)
def test_what_go_cannot_read_is_refused(raw: bytes) -> None:
    for parse in (gojson.parse, gojson.parse_unambiguous):
        with pytest.raises(InvalidInput, match="invalid request body"):
            parse(raw)


@pytest.mark.parametrize("raw", [b"", b" \r\n", b"{}"])
def test_nothing_is_an_empty_object(raw: bytes) -> None:
    assert gojson.parse(raw) == {}
    assert gojson.parse_unambiguous(raw) == {}


def test_a_worker_may_say_a_thing_twice_and_an_operator_may_not() -> None:
    raw = b'{"a": {"b": 1, "b": 2}}'
    assert gojson.parse(raw) == {"a": {"b": 2}}
    with pytest.raises(InvalidInput, match="more than once"):
        gojson.parse_unambiguous(raw)


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'{"\\udfff": 1}', b'[["\\ud83d"]]'])
def test_half_a_character_cannot_be_told_back_to_an_operator(raw: bytes) -> None:
    with pytest.raises(InvalidInput, match="Unicode"):
        gojson.parse_unambiguous(raw)


def test_both_halves_are_a_character() -> None:
    assert gojson.parse_unambiguous(b'"\\ud83e\\udd99"') == "\N{LLAMA}"
