import json
from contextlib import suppress
from urllib.parse import unquote

from hypothesis import example, given
from hypothesis import strategies as st

from clustermgr.lib.errors import NodeRefused
from nodes.api.logdoor import MAX_REASON, cut
from nodes.loglines import Sieve, as_text
from nodes.wire.logs import LogLine, log_path, read_frame, read_index, read_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper),
)
LINES = st.lists(
    st.builds(
        LogLine,
        timestamp=st.sampled_from(["2030-01-01T12:00:00Z", "2030-01-01T13:00:00.123456789Z", "?"]),
        stream=st.sampled_from(["stdout", "stderr"]),
        text=st.text(),
    )
)
SIEVES = st.builds(
    Sieve,
    stream=st.sampled_from(["", "stdout", "stderr"]),
    text=st.text(max_size=2),
    tail=st.none() | st.integers(1, 5),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
def test_whatever_a_worker_answers_is_read_or_refused(payload: bytes) -> None:
    for read in (read_index, read_lines):
        with suppress(NodeRefused):
            read(payload)


@given(
    st.text() | st.fixed_dictionaries({"type": JSON, "lines": JSON, "line": JSON}).map(json.dumps)
)
@example('{"type":"line","line":[]}')
def test_whatever_a_frame_holds_is_read_or_refused(text: str) -> None:
    with suppress(NodeRefused):
        read_frame(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_key_is_one_part_of_a_path_and_comes_out_as_it_went_in(key: str) -> None:
    _, _, escaped = log_path(key).rpartition("/")
    assert unquote(unquote(escaped)) == key
    assert log_path(key).count("/") == 3


@given(LINES, SIEVES)
def test_a_sieve_keeps_order_adds_nothing_and_is_done_after_one_pass(
    lines: list[LogLine], sieve: Sieve
) -> None:
    picked = sieve.pick(lines)
    rest = iter(lines)
    assert all(line in rest for line in picked)
    assert sieve.pick(picked) == picked
    assert sieve.tail is None or len(picked) <= sieve.tail


@given(LINES)
def test_a_file_has_one_line_for_each(lines: list[LogLine]) -> None:
    assert len(as_text(lines).splitlines()) == len(lines)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_words_fit_into_a_closing_frame(words: str) -> None:
    assert len(cut(words).encode()) <= MAX_REASON
