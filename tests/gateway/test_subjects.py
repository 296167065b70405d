from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from nodes.wire import SUBJECTS, Kind, ProcessKey, Role, Subject, sanitise, subjects

NODE = UUID(int=7)


def test_tokens_are_sanitised_as_workers_do() -> None:
    assert subjects.UPGRADE.of("a.b*c") == "nodes.a-b-c.backend.upgrade"
    progress = subjects.INSTALL_PROGRESS.of("a.b c", op="x.y z")
    assert progress == "nodes.a-b-c.backend.install.x-y-z.progress"


@pytest.mark.parametrize("token", ["", "a\rb", "\x00", "\x7f"])
def test_what_cannot_be_a_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be part of a subject"):
        sanitise(token)
    with pytest.raises(InvalidInput, match="cannot be part of a subject"):
        subjects.INSTALL.of(token)
    with pytest.raises(InvalidInput, match="cannot be part of a subject"):
        subjects.INSTALL_PROGRESS.of(NODE, op=token)


@given(st.text())
def test_a_token_never_becomes_two_or_a_pattern(token: str) -> None:
    try:
        subject = subjects.INSTALL_PROGRESS.of(NODE, op=token)
    except InvalidInput:
        return
    assert subject.count(".") == 5
    assert not set(subject) & set("*> \t\r\n")


def test_the_registry_names_every_subject_once_and_with_its_roles() -> None:
    told = {
        (subject.any_of(NODE).removeprefix(f"nodes.{NODE}."), subject.publisher, subject.kind)
        for subject in SUBJECTS
    }
    request, event = Kind.REQUEST, Kind.EVENT
    assert told == {
        ("backend.install", Role.MANAGER, request),
        ("backend.upgrade", Role.MANAGER, request),
        ("backend.install.*.progress", Role.WORKER, event),
        ("backend.cancel", Role.MANAGER, request),
        ("backend.stop", Role.MANAGER, event),
        ("backend.delete", Role.MANAGER, request),
        ("backend.list", Role.MANAGER, request),
        ("models.running", Role.MANAGER, request),
        ("model.unload", Role.MANAGER, request),
        ("model.stop", Role.MANAGER, request),
        ("model.delete", Role.MANAGER, request),
        ("stop", Role.MANAGER, event),
        ("files.ensure", Role.MANAGER, request),
        ("files.stage", Role.MANAGER, request),
        ("files.temp", Role.MANAGER, request),
        ("files.listdir", Role.MANAGER, request),
    }
    assert len(SUBJECTS) == len(told)


def test_a_subject_that_is_not_in_the_registry_does_not_exist() -> None:
    named = {value for value in vars(subjects).values() if isinstance(value, Subject)}
    assert named | set(subjects.FILES) == set(SUBJECTS)


def test_agents_hear_only_stops() -> None:
    heard = [subject for subject in SUBJECTS if Role.AGENT in subject.subscribers]
    assert heard == [subjects.STOP_BACKEND]


@pytest.mark.parametrize(
    ("text", "model", "index"),
    [
        ("qwen3#1", "qwen3", 1),
        ("a#b#0", "a#b", 0),
        ("org/m.v2#12", "org/m.v2", 12),
        ("a##7", "a#", 7),
    ],
)
def test_a_process_key_is_split_at_its_last_hash(text: str, model: str, index: int) -> None:
    key = ProcessKey.parse(text)
    assert key == ProcessKey(model_id=model, replica_index=index)
    assert str(key) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "#1",
        "qwen3",
        "qwen3#",
        "a#-1",
        "a#1.0",
        "a#²",
        "a#1 ",
        f"a#{2**31}",
        "a#" + "9" * 9999,
    ],
)
def test_what_is_no_process_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="process key"):
        ProcessKey.parse(text)
