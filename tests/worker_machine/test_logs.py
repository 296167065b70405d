import asyncio
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.worker_machine.loops import in_loop
from worker.machine import Line
from worker.processes import RingLogs
from worker.processes.logs import LINE_LENGTH, LINES, PROCESSES, Splitter

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def line(text: str, *, stream: str = "stdout") -> Line:
    return Line(timestamp=NOW, stream=stream, text=text)


def test_only_the_last_thousand_lines_are_kept() -> None:
    logs = RingLogs()
    for number in range(LINES + 5):
        logs.add("m#0", line(str(number)))
    kept = logs.lines("m#0")
    assert (len(kept), kept[0].text, kept[-1].text) == (LINES, "5", str(LINES + 4))


def test_keys_are_those_with_lines_and_an_unknown_one_has_none() -> None:
    logs = RingLogs()
    logs.add("b#1", line("x"))
    logs.add("a#0", line("y"))
    assert logs.keys() == ["a#0", "b#1"]
    assert logs.lines("nobody#0") == []


def test_the_process_that_was_silent_longest_is_forgotten_first() -> None:
    logs = RingLogs()
    for number in range(PROCESSES):
        logs.add(f"m#{number}", line("x"))
    logs.add("m#0", line("still here"))
    logs.add("new#0", line("x"))
    assert len(logs.keys()) == PROCESSES
    assert logs.lines("m#0")
    assert not logs.lines("m#1")


def test_a_follower_hears_new_lines_of_its_process_until_it_leaves() -> None:
    logs = RingLogs()
    heard: list[str] = []
    logs.add("m#0", line("before"))
    leave = logs.follow("m#0", lambda told: heard.append(told.text))
    logs.add("m#0", line("now"))
    logs.add("m#1", line("another process"))
    leave()
    leave()
    logs.add("m#0", line("after"))
    assert heard == ["now"]


def test_one_of_two_followers_may_leave_while_a_line_is_told() -> None:
    logs = RingLogs()
    heard: list[str] = []
    leave = logs.follow("m#0", lambda _: leave())
    logs.follow("m#0", lambda told: heard.append(told.text))
    logs.add("m#0", line("a"))
    logs.add("m#0", line("b"))
    assert heard == ["a", "b"]


@in_loop
async def test_both_pipes_are_read_to_their_end_with_garbage_in_them() -> None:
    logs = RingLogs()
    pipe = asyncio.StreamReader()
    pipe.feed_data(b"good\n\xff\xfe\x00garbage\r\nno newline at the end")
    pipe.feed_eof()
    await logs.read("m#0", "stderr", pipe)
    texts = [told.text for told in logs.lines("m#0")]
    assert texts == ["good", "\ufffd\ufffd\x00garbage", "no newline at the end"]
    assert {told.stream for told in logs.lines("m#0")} == {"stderr"}


def test_a_repainted_progress_bar_is_shown_as_a_terminal_shows_it() -> None:
    assert Splitter().feed(b"10%\r50%\r100%\r\n") == ["100%"]


def test_last_words_are_those_on_stderr_of_this_life() -> None:
    logs = RingLogs()
    logs.add("m#0", Line(timestamp=datetime(2026, 2, 1, tzinfo=UTC), stream="stderr", text="old"))
    logs.add("m#0", line("chatter"))
    for number in range(25):
        logs.add("m#0", line(str(number), stream="stderr"))
    assert logs.last_words("m#0", since=NOW) == [str(number) for number in range(5, 25)]


@given(st.lists(st.binary(max_size=3 * LINE_LENGTH), max_size=6))
def test_any_bytes_become_bounded_lines_and_memory_stays_bounded(chunks: list[bytes]) -> None:
    splitter = Splitter()
    lines = [text for chunk in chunks for text in splitter.feed(chunk)]
    assert len(lines) == b"".join(chunks).count(b"\n")
    assert all(len(text) <= LINE_LENGTH for text in lines + splitter.end())


@given(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=200), st.data())
def test_a_line_is_the_same_however_it_is_cut_into_chunks(text: str, data: st.DataObject) -> None:
    whole = text.encode() + b"\n"
    at = data.draw(st.integers(0, len(whole)))
    splitter = Splitter()
    assert splitter.feed(whole[:at]) + splitter.feed(whole[at:]) == [text]
